package dashboard

import (
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
)

// A filter selects jobs by the fields of the search form. A job must match all fields that are set.
type filter struct {
	Query   string // part of a name, or a shell pattern
	Tag     string
	Outcome string // one of outcomeChoices, or ""
	page    int    // page of the list of jobs, from 1
}

var outcomeChoices = []string{"failing", "running", "late", "paused", "slow", "stale", "overdue", "ok", "failed", "timeout", "lost", "abandoned", "missed", "never ran"}

func filterOf(q url.Values) filter {
	n, _ := strconv.Atoi(q.Get("page"))
	return filter{Query: strings.TrimSpace(cleanText(q.Get("q"))), Tag: cleanText(q.Get("tag")), Outcome: cleanText(q.Get("outcome")), page: max(n, 1)}
}

// Set reports whether the filter has a condition.
func (f filter) Set() bool { return f.Query != "" || f.Tag != "" || f.Outcome != "" }

// queryValues returns the filter as query parameters, without the page.
func (f filter) queryValues() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"q": f.Query, "tag": f.Tag, "outcome": f.Outcome} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// linkTo returns a link to a page with the same filter. more lists names and values of additional query parameters in turn.
func (f filter) linkTo(to string, more ...string) string {
	q := f.queryValues()
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	if len(q) == 0 {
		return to
	}
	return to + "?" + q.Encode()
}

func (f filter) includesJob(j *cluster.Job, failing, late bool) bool {
	return f.matchesName(j.Name) && (f.Tag == "" || slices.Contains(cleanTags(j.Tags), f.Tag)) && f.matchesOutcome(j, failing, late)
}

func (f filter) matchesName(name string) bool {
	if f.Query == "" {
		return true
	}
	if strings.ContainsAny(f.Query, "*?[") {
		matched, err := path.Match(f.Query, name)
		return matched && err == nil
	}
	return strings.Contains(strings.ToLower(name), strings.ToLower(f.Query))
}

func (f filter) matchesOutcome(j *cluster.Job, failing, late bool) bool {
	switch f.Outcome {
	case "":
		return true
	case "late":
		return late
	case "failing":
		return failing
	case "running":
		return len(j.Holders) > 0
	case "paused":
		return j.Paused
	case cluster.Slow, cluster.Stale, cluster.Overdue:
		return hasCondition(j, f.Outcome)
	case "never ran":
		return j.Last == nil
	}
	return j.LastEnd != nil && string(j.LastEnd.Outcome) == f.Outcome
}

func hasCondition(j *cluster.Job, code string) bool {
	return slices.ContainsFunc(j.Conditions, func(c cluster.Condition) bool { return c.Code == code })
}

// failingJobs returns the jobs with a problem. The value is the position of the job's first problem in the list of problems, from 1.
func failingJobs(st *cluster.Status) map[string]int {
	jobs := map[string]int{}
	for i, p := range st.Problems {
		if p.Job != "" {
			jobs[p.Job] = i + 1
		}
	}
	return jobs
}

// chooseJobs returns the jobs that match the filter: first the jobs with a problem, in the order of the problems, and then the others by name.
func (f filter) chooseJobs(st *cluster.Status) []*cluster.Job {
	bad, late := failingJobs(st), lateJobs(st)
	var jobs, rest []*cluster.Job
	for i := range st.Jobs {
		switch j := &st.Jobs[i]; {
		case !f.includesJob(j, bad[j.Name] > 0, late[j.Name] != ""):
		case bad[j.Name] > 0:
			jobs = append(jobs, j)
		default:
			rest = append(rest, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *cluster.Job) int { return bad[a.Name] - bad[b.Name] })
	return append(jobs, rest...)
}

func cleanTags(tags []string) []string {
	list := make([]string, len(tags))
	for i, tag := range tags {
		list[i] = cleanText(tag)
	}
	return list
}

func tagsOf(st *cluster.Status) []string {
	var tags []string
	for _, j := range st.Jobs {
		tags = append(tags, cleanTags(j.Tags)...)
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// serveJump redirects to the job whose name is the text in the query, or to the only job whose name matches the text. Otherwise it redirects to the list of
// matching jobs.
func (h *handler) serveJump(w http.ResponseWriter, r *http.Request) {
	query := strings.TrimSpace(r.URL.Query().Get("q"))
	st, err := h.readStatus(r.Context())
	if err != nil {
		h.renderPage(w, r, failedPage(err))
		return
	}
	to := filter{Query: query}.linkTo("/")
	if jobs := (filter{Query: query}).chooseJobs(st); query != "" && len(jobs) == 1 {
		to = jobPath(jobs[0].Name)
	}
	for _, j := range st.Jobs {
		if j.Name == query {
			to = jobPath(query)
		}
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

type target struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Href string `json:"href"`
	// State is what a job needs or does, such as "failing"; "" for nothing. Acts are the ids of the forms on the page of the job.
	State string   `json:"state,omitempty"`
	Acts  []string `json:"acts,omitempty"`
}

// stateOf returns the state of a job in one or two words.
func stateOf(j *cluster.Job, failing bool) string {
	switch {
	case len(j.Conditions) > 0:
		return j.Conditions[0].Code
	case failing:
		return "failing"
	case len(j.Holders) > 0:
		return "running"
	case j.Paused:
		return "paused"
	case !j.Enabled:
		return "not enabled"
	}
	return ""
}

// formsOf returns the ids of the forms that the page of a job has.
func formsOf(j *cluster.Job) (acts []string) {
	if j.Enabled {
		acts = append(acts, "trigger")
	}
	if len(j.Holders) > 0 {
		acts = append(acts, "cancel")
	}
	if j.Paused {
		return append(acts, "resume")
	}
	return append(acts, "pause")
}

func (h *handler) servePalette(w http.ResponseWriter, r *http.Request) {
	targets := []target{}
	add := func(kind string, links ...link) {
		for _, l := range links {
			targets = append(targets, target{Name: l.Text, Kind: kind, Href: l.Href})
		}
	}
	add("page", link{"Overview", "/"}, link{"Timeline", "/timeline"}, link{"Cluster", "/cluster"}, link{"Calendar", "/calendar"}, link{"Audit log", "/audit"},
		link{"Failing jobs", "/?outcome=failing"}, link{"Late jobs", "/?outcome=late"}, link{"Running jobs", "/?outcome=running"}, link{"Paused jobs", "/?outcome=paused"})
	_, mayAct := h.actor(r)
	st, err := h.readStatus(r.Context())
	if err != nil {
		http.Error(w, "cannot list the jobs", http.StatusServiceUnavailable)
		return
	}
	bad := failingJobs(st)
	for _, j := range (filter{}).chooseJobs(st) {
		t := target{Name: cleanText(j.Name), Kind: "job", Href: jobPath(j.Name), State: stateOf(j, bad[j.Name] > 0)}
		if mayAct {
			t.Acts = formsOf(j)
		}
		targets = append(targets, t)
	}
	for _, tag := range tagsOf(st) {
		add("tag", link{cleanText(tag), "/?" + url.Values{"tag": {tag}}.Encode()})
	}
	if mayAct {
		add("act", link{"Pause all jobs…", "/pause"}, link{"Resume all jobs…", "/resume"})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(targets)
}

// lateJobs returns the jobs that are slow, stale or overdue, and the jobs whose newest tick is late, with a description: the tick was missed, its run started late, or its run is waiting for a slot of a
// pool.
func lateJobs(st *cluster.Status) map[string]string {
	jobs := map[string]string{}
	bad := failingJobs(st)
	for _, j := range st.Jobs {
		for _, c := range j.Conditions {
			jobs[j.Name] = c.Code
		}
		if j.Last == nil {
			continue
		}
		jitter := time.Duration(j.JitterMS) * time.Millisecond
		if by := console.Late(*j.Last); by > jitter && len(j.After) == 0 { // a job with `after` starts when its parents have ended
			jobs[j.Name] = "began " + console.Span(by) + " after its tick"
		}
		if bad[j.Name] > 0 && j.LastEnd != nil && j.LastEnd.Outcome == journal.OutcomeMissed {
			jobs[j.Name] = "missed its tick"
		}
	}
	for _, p := range st.Pools {
		for _, w := range p.Waiting {
			if w.Job != "" {
				jobs[w.Job] = "waits for pool " + cleanText(p.Name)
			}
		}
	}
	return jobs
}
