package web

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/testtier"
)

const (
	metricsPage   = harness.Root + "/docs/metrics.md"
	alertRules    = harness.Root + "/deploy/prometheus/alerts.yml"
	alertTests    = harness.Root + "/deploy/prometheus/alerts_test.yml"
	dashboardFile = harness.Root + "/deploy/grafana/cronclave.json"
)

// targetLabels are those that Prometheus adds to each series.
var targetLabels = []string{"job", "instance"}

// exposed are the metrics of /metrics by name: the values of each of their labels.
type exposed map[string]map[string][]string

var (
	sampleLine  = regexp.MustCompile(`(?m)^(cronclave_[a-z_]+)(?:\{(.*)\})? \S+$`)
	sampleLabel = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	typeLine    = regexp.MustCompile(`(?m)^# TYPE (cronclave_[a-z_]+) `)
	pageRow     = regexp.MustCompile("(?m)^- `(cronclave_[a-z_]+)[^`]*`: ")
	alertRow    = regexp.MustCompile("(?m)^- `(Cronclave[A-Za-z]+)")
)

func parseExposed(body string) exposed {
	found := exposed{}
	for _, line := range sampleLine.FindAllStringSubmatch(body, -1) {
		if found[line[1]] == nil {
			found[line[1]] = map[string][]string{}
		}
		for _, label := range sampleLabel.FindAllStringSubmatch(line[2], -1) {
			found[line[1]][label[1]] = append(found[line[1]][label[1]], label[2])
		}
	}
	return found
}

// A replica exposes the metrics of docs/metrics.md and no others of ours, and each metric, label and outcome that the dashboard and the alert rules name.
// Promise: P6
func TestDashboardAndAlertsNameMetricsThatExist(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const token = "s3cr3t-t0ken-of-some-length"
	c := harness.NewCluster(t, fmt.Sprintf(`
server = { listen = "127.0.0.1:0", token_file = %q }
[pools.db]
slots = 1
[jobs.good]
schedule = "* * * * * *"
command = "true"
retry.max = 1
recover = true
pool = "db"
stale_after = "1ms"
[jobs.bad]
schedule = "* * * * * *"
command = "false"
notify = ["nobody"]
[notify.nobody]
kind = "webhook"
url = "http://127.0.0.1:1"
[jobs.slow]
schedule = "* * * * * *"
command = ["sleep", "2.5"]
[jobs.quiet]
schedule = "0 0 1 1 *"
command = "true"
`, tokenFile(t, token)))
	c.Insist(t, "pause", "quiet") // before the leader reads it for the first time
	j, err := journal.New(journal.Config{Redis: c.Client, Namespace: c.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Client.Do(t.Context(), "ZADD", "cronclave:"+c.Namespace+":replicas", time.Now().UnixMilli(), "gone-abcdefgh").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.ClaimLost(t.Context(), journal.LostReplica{ID: "gone-abcdefgh", Seen: time.Now()}); err != nil {
		t.Fatal(err)
	}
	r := c.Start(t, "r1")
	url := r.MetricsURL(t)
	documented := slices.Sorted(slices.Values(submatches(pageRow, readText(t, metricsPage))))
	var body string
	harness.Eventually(t, harness.StartTimeout, "scrape with the metrics of "+metricsPage+" and no others", func() bool {
		_, body = harness.GetPage(t, url, token)
		return slices.Equal(slices.Sorted(slices.Values(submatches(typeLine, body))), documented)
	})
	found := parseExposed(body)
	for _, q := range append(alertQueries(t), dashboardQueries(t)...) {
		for _, fault := range q.faults(found) {
			t.Errorf("%s: %s\n\t%s", q.of, fault, q.text)
		}
	}
	harness.StopAll(t, []*harness.Replica{r})
}

// Each alert has a severity, a summary, a description, a line in docs/metrics.md, and a test in which it fires.
func TestAlertsAreComplete(t *testing.T) {
	t.Parallel()
	rules := alertQueries(t)
	text := readText(t, alertRules)
	for _, key := range []string{"severity: ", "summary: ", "description: >-"} {
		if n := strings.Count(text, "\n          "+key); n != len(rules) {
			t.Errorf("%d alerts, and %q %d times", len(rules), key, n)
		}
	}
	var names []string
	for _, rule := range rules {
		names = append(names, rule.of)
		if !strings.Contains(readText(t, alertTests), `alertname="`+rule.of+`", alertstate="firing"`) {
			t.Errorf("no test in which %s fires", rule.of)
		}
		for _, label := range rule.printed {
			if !slices.Contains(targetLabels, label) && !regexp.MustCompile(`\b`+label+`\b`).MatchString(rule.text) {
				t.Errorf("%s: its text has the label %s, and its alerts have not", rule.of, label)
			}
		}
	}
	documented := submatches(alertRow, readText(t, metricsPage))
	slices.Sort(names)
	slices.Sort(documented)
	if !slices.Equal(names, documented) {
		t.Errorf("alerts are %q, and documented are %q", names, documented)
	}
}

// query is an expression of Prometheus.
type query struct {
	of, text string
	printed  []string // labels in the texts of an alert
}

var (
	promName      = regexp.MustCompile(`\bcronclave_[a-z_]+`)
	promSelector  = regexp.MustCompile(`(cronclave_[a-z_]+)\{([^}]*)\}`)
	promMatcher   = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	promGrouping  = regexp.MustCompile(`\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	promAggregate = regexp.MustCompile(`\bby\s*\(([^)]*)\)\s*\(+(?:[a-z_]+\(+)*(cronclave_[a-z_]+)`)
	grafanaLabels = regexp.MustCompile(`^label_values\((cronclave_[a-z_]+)(?:\{[^}]*\})?, ([a-z_]+)\)$`)
)

// faults are the names in a query that nothing exposes.
func (q query) faults(found exposed) (faults []string) {
	names := promName.FindAllString(q.text, -1)
	if len(names) == 0 {
		return []string{"no metric of ours"}
	}
	labels := slices.Clone(targetLabels)
	for _, name := range names {
		if found[name] == nil {
			faults = append(faults, "no metric "+name)
		}
		labels = slices.AppendSeq(labels, maps.Keys(found[name]))
	}
	for _, group := range promGrouping.FindAllStringSubmatch(q.text, -1) {
		faults = append(faults, missing(group[1], labels, "any of its metrics")...)
	}
	for _, sum := range append(promAggregate.FindAllStringSubmatch(q.text, -1), labelValues(q.text)...) {
		faults = append(faults, missing(sum[1], slices.AppendSeq(slices.Clone(targetLabels), maps.Keys(found[sum[2]])), sum[2])...)
	}
	for _, selector := range promSelector.FindAllStringSubmatch(q.text, -1) {
		faults = append(faults, found.selectorFaults(selector[1], selector[2])...)
	}
	return faults
}

// labelValues has the label and the metric of a query for the values of a variable.
func labelValues(text string) [][]string {
	if m := grafanaLabels.FindStringSubmatch(text); m != nil {
		return [][]string{{m[0], m[2], m[1]}}
	}
	return nil
}

func missing(list string, labels []string, what string) (faults []string) {
	for _, label := range strings.Split(list, ",") {
		if !slices.Contains(labels, strings.TrimSpace(label)) {
			faults = append(faults, "no label "+label+" of "+what)
		}
	}
	return faults
}

// selectorFaults looks at the labels of a selector, and at the values of those that have few.
func (e exposed) selectorFaults(metric, selector string) (faults []string) {
	for _, m := range promMatcher.FindAllStringSubmatch(selector, -1) {
		label, value := m[1], m[2]
		values, known := e[metric][label]
		if !known && !slices.Contains(targetLabels, label) {
			faults = append(faults, "no label "+label+" of "+metric)
		}
		if label != "outcome" && label != "state" {
			continue
		}
		for _, one := range strings.Split(value, "|") {
			if !slices.Contains(values, one) {
				faults = append(faults, fmt.Sprintf("no %s %q of %s", label, one, metric))
			}
		}
	}
	return faults
}

var (
	alertEntry   = regexp.MustCompile(`(?m)^      - alert: (\w+)\n`)
	alertExpr    = regexp.MustCompile(`(?m)^        expr: (?:>-\n((?:          .*\n)+)|(.*)\n)`)
	alertPrinted = regexp.MustCompile(`\{\{ \$labels\.([a-z_]+) \}\}`)
)

// alertQueries reads the rules by their indentation, which is that of the whole file.
func alertQueries(t *testing.T) (queries []query) {
	t.Helper()
	text := readText(t, alertRules)
	starts := alertEntry.FindAllStringSubmatchIndex(text, -1)
	for i, at := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		rule := text[at[1]:end]
		expr := alertExpr.FindStringSubmatch(rule)
		if expr == nil {
			t.Fatalf("%s has no expr in the form that is read here", text[at[2]:at[3]])
		}
		queries = append(queries, query{text[at[2]:at[3]], strings.Join(strings.Fields(expr[1]+expr[2]), " "), submatches(alertPrinted, rule)})
	}
	if n := strings.Count(text, "alert: "); n != len(queries) || n == 0 {
		t.Fatalf("read are %d of %d alerts", len(queries), n)
	}
	return queries
}

// dashboardQueries are those of the panels and of the variables.
func dashboardQueries(t *testing.T) (queries []query) {
	t.Helper()
	var d struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
			Datasource  struct{ UID string }
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	if err := json.Unmarshal([]byte(readText(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("panel %q has the data source %q and %d queries", p.Title, p.Datasource.UID, len(p.Targets))
		}
		for _, target := range p.Targets {
			queries = append(queries, query{of: "panel " + p.Title, text: target.Expr})
		}
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			queries = append(queries, query{of: "variable " + v.Name, text: v.Definition})
		}
	}
	if len(queries) < 30 {
		t.Fatalf("there are %d queries", len(queries))
	}
	return queries
}

func submatches(re *regexp.Regexp, text string) (all []string) {
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
