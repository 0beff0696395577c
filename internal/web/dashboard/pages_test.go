package dashboard

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/testtier"
)

// everyPage lists pages of each kind, and of each error.
func everyPage() map[string]int {
	return map[string]int{
		"/": 200, "/?q=rep&tag=night&outcome=failing": 200, "/?q=none": 200, "/?page=99": 200,
		"/jobs/report": 200, "/jobs/backup": 200, "/jobs/child": 200, "/jobs/off": 200, "/jobs/gone": 200, "/jobs/nojob": 404, "/jobs/%3Cb%3E": 404,
		"/jobs/report/runs/run-0": 200, "/jobs/report/runs/run-1": 200, "/jobs/report/runs/none": 404,
		"/jobs/backup/why?at=2026-11-01+03:00": 200, "/jobs/backup/why?at=soon": 400, "/jobs/%7D/why?at=2026-11-01+03:00": 404, "/jobs/backup/why": 400,
		"/cluster": 200, "/audit": 200, "/audit?page=junk": 200, "/timeline": 200, "/timeline?span=10m&by=job": 200, "/timeline?q=backup&span=7d&at=2026-01-01T00:00:00Z": 200, "/timeline?at=junk&span=junk": 200,
		"/calendar": 200, "/calendar?q=hot&zone=Asia/Tokyo": 200, "/calendar?zone=Nowhere": 400,
		"/pause": 200, "/pause?tag=night": 200, "/resume": 200, "/nothing": 404, "/?said=paused": 200, "/?said=%3Cb%3E": 200,
	}
}

// node is an element of a page.
type node struct {
	name  string
	attrs map[string]string
	text  string // directly within it
	path  []string
}

// parse reads a page as XML, which accepts less than HTML: a page that is well-formed there has no element that a browser would have to guess at.
func parse(page string) (nodes []*node, err error) {
	d := xml.NewDecoder(strings.NewReader(page))
	d.Entity = xml.HTMLEntity
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	var open []*node
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nodes, nil
		}
		if err != nil {
			return nil, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			n := &node{name: t.Name.Local, attrs: map[string]string{}}
			for _, a := range t.Attr {
				if _, twice := n.attrs[a.Name.Local]; twice {
					return nil, fmt.Errorf("%s has %s twice", n.name, a.Name.Local)
				}
				n.attrs[a.Name.Local] = a.Value
			}
			for _, o := range open {
				n.path = append(n.path, o.name)
			}
			nodes, open = append(nodes, n), append(open, n)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			for _, o := range open {
				o.text += string(t)
			}
		}
	}
}

func withName(nodes []*node, names ...string) []*node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return !slices.Contains(names, n.name) })
}

// TestEveryPageIsSound holds the rules of all pages: well-formed, one heading, ids that are unique, fields with labels, forms and links with names,
// no script and no style but those of files.
func TestEveryPageIsSound(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	for path, code := range everyPage() {
		w := s.get(path)
		if w.Code != code {
			t.Errorf("%s: %d, want %d: %s", path, w.Code, code, w.Body)
		}
		nodes, err := parse(w.Body.String())
		if err != nil {
			t.Errorf("%s is not well-formed: %v\n%s", path, err, w.Body)
			continue
		}
		for _, fault := range pageFaults(nodes) {
			t.Errorf("%s: %s", path, fault)
		}
	}
}

// pageFaults are the broken rules of a page.
func pageFaults(nodes []*node) (faults []string) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if n := len(withName(nodes, "h1")); n != 1 {
		add("%d h1", n)
	}
	if titles := withName(nodes, "title"); len(titles) == 0 || titles[0].text == "" {
		add("no title")
	}
	ids, labels := map[string]int{}, map[string]bool{}
	for _, n := range nodes {
		if id, ok := n.attrs["id"]; ok {
			ids[id]++
		}
		if n.name == "label" {
			labels[n.attrs["for"]] = n.text != ""
		}
	}
	for id, n := range ids {
		if n > 1 {
			add("%d elements with the id %s", n, id)
		}
	}
	for _, n := range nodes {
		if fault := n.fault(labels, ids); fault != "" {
			add("%s %v: %s", n.name, n.attrs, fault)
		}
	}
	return faults
}

// fault is the broken rule of an element; "" if there is none.
func (n *node) fault(labels map[string]bool, ids map[string]int) string {
	for name := range n.attrs {
		if strings.HasPrefix(name, "on") || name == "style" {
			return "inline " + name
		}
	}
	named := n.attrs["aria-label"] != "" || ids[n.attrs["aria-labelledby"]] == 1
	switch n.name {
	case "style":
		return "inline style"
	case "script":
		if n.attrs["src"] == "" || strings.TrimSpace(n.text) != "" {
			return "inline script"
		}
	case "input", "select", "textarea":
		if n.attrs["type"] != "hidden" && !labels[n.attrs["id"]] {
			return "no label"
		}
	case "a", "button", "th", "summary":
		if strings.TrimSpace(n.text) == "" && !named {
			return "no text"
		}
	case "section", "nav", "dialog":
		if !named {
			return "no name"
		}
	case "img":
		if _, ok := n.attrs["alt"]; !ok {
			return "no alt"
		}
	case "form":
		if m := n.attrs["method"]; m != "" && m != "post" {
			return "method " + m
		}
	}
	return ""
}

// bold is the markup of templates that texts of others would have if they were not escaped. Theirs has no end.
var bold = regexp.MustCompile(`<b>[^<]*</b>`)

// TestTextOfOthersIsText: markup, terminal sequences and characters that turn the direction of writing are nowhere on a page, whatever jobs print.
func TestTextOfOthersIsText(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	seen := 0
	for path := range everyPage() {
		body := s.get(path).Body.String()
		seen += strings.Count(body, "&lt;script&gt;alert(1)&lt;/script&gt;")
		body = bold.ReplaceAllString(body, "")
		for _, bad := range []string{"<script>alert", "\x1b", "\u202e", "[31m", "title\x07", "<b>"} {
			if i := strings.Index(body, bad); i >= 0 {
				t.Errorf("%s has %q: %s", path, bad, body[max(i-80, 0):min(i+80, len(body))])
			}
		}
	}
	if seen < 20 {
		t.Errorf("the hostile text is shown %d times: the test looks at the wrong pages", seen)
	}
	var targets []target
	if err := json.Unmarshal(s.get("/palette.json").Body.Bytes(), &targets); err != nil || len(targets) < 10 {
		t.Errorf("%v %v", targets, err)
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	for _, path := range []string{"/", "/nothing", "/palette.json", "/calendar.ics", "/assets/none"} {
		header := s.get(path).Header()
		for name, want := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store"} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s: %q", path, name, got)
			}
		}
	}
	nodes, err := parse(s.get("/").Body.String())
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, n := range withName(nodes, "link", "script", "img") {
		w := s.get(n.attrs["href"] + n.attrs["src"])
		if w.Code != http.StatusOK || w.Body.Len() == 0 || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Header().Get("Content-Type") == "" {
			t.Errorf("%v: %d %v", n.attrs, w.Code, w.Header())
		}
		links++
	}
	if links != 4 {
		t.Errorf("%d files, want 4", links)
	}
}

// A page has another tag once its facts change, and not only because time passes.
func TestTagOfAPage(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newSite(t, "")
	s.crowd(3, 2, journal.OutcomeOK)
	s.lag()
	s.must(s.journal.Record(t.Context(), []journal.Record{s.failure("job-0000", 40*time.Second), s.failure("job-0000", 20*time.Second)}))
	s.shows("/", "2 in a row for <time", "ok <time", "slow for <time", "stale for <time")
	s.shows("/jobs/job-0000", "failed <time")
	tag := func(path string) (tag, body string) {
		w := s.read(path)
		return w.Header().Get("ETag"), w.Body.String()
	}
	for _, path := range []string{"/", "/?outcome=late", "/jobs/job-0000", "/jobs/nightly"} {
		first, body := tag(path)
		since := time.Now()
		s.await("the same tag of "+path+" for two seconds, in which the age of what began lately changes", func() bool {
			next, later := tag(path)
			if next != first {
				first, body, since = next, later, time.Now()
			}
			return later != body && time.Since(since) > 2*time.Second
		})
	}
	first, _ := tag("/")
	now := time.Now()
	s.must(s.journal.Record(t.Context(), []journal.Record{{RunID: "new", Job: "job-0001", Attempt: 1, Token: 1, Replica: "r1", Outcome: journal.OutcomeOK, Started: now, Finished: now, DurationMS: ms(5)}}))
	s.await("another tag after a run", func() bool {
		next, _ := tag("/")
		return next != first
	})
}

// TestPagesAnswerQuestions looks for the answers of each page.
func TestPagesAnswerQuestions(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	s.shows("/", `<h1>1 job fails, 2 warnings</h1>`, `<tr class="failing"><th scope="row" class="name" title="report · @hourly"><a href="/jobs/report">`, `href="/jobs/report/runs/run-2"`, "r1/0", "after backup", "not enabled", "Pause all…")
	s.shows("/?q=rep", "1 of 5 jobs", "Pause these…")
	s.shows("/jobs/report", "said &lt;script&gt;", "Coming ticks", "Europe/Berlin", `class="b bad"`, "Stop 1 running", "Run now")
	s.shows("/jobs/report", `<th scope="col">Differs</th><th scope="col">r1</th><th scope="col">r2</th>`, `<code>&#34;1h&#34;</code></td><td><code>&#34;2h&#34; &lt;script&gt;`, "2 settings that do not differ", `<span class="m warn" aria-hidden="true">!</span> timeout</th>`,
		"the replicas differ; give all the same files", `<a href="#s-settings">the configurations differ: job report: `)
	s.shows("/jobs/backup", "the same on r1, r2", "All 3 settings", `<code>&#34;24h&#34;</code>`)
	s.shows("/jobs/child", "no replica has the job", "r1, r2: no such job in the configuration")
	s.shows("/jobs/report/runs/run-1", "last line", "r1/0", "#99", "red")
	s.shows("/jobs/gone", "no replica has this job any more", "/jobs/gone/runs/gone")
	s.shows("/cluster", "2 replicas up", "v1.2.3", "differs", "abcdef01")
	s.shows("/timeline?span=10m", "take-over of backup: from r1 to r2, token 8", `class="takeover"`, ">to come<")
	s.shows("/timeline?span=1h", "What went wrong in this window", `<th scope="row" class="wrapless"><a href="/jobs/report">`, "To come in this window", `class="s warn"`, `class="s off"`, `class="b bad"`)
	s.shows("/timeline?span=10m&by=job&q=backup", `href="/jobs/backup"><text class="lane"`)
	s.shows("/calendar", "hot (12 an hour or more)", "the busiest hour")
	s.shows("/jobs/backup/why?at=2026-11-01+04:00", "no tick")
	s.shows("/pause?q=rep", "Pause 1 job?", `name="job" value="report"`)
	s.shows("/?said=paused", "ticks are skipped")
	s.mayAct = false
	for _, path := range []string{"/", "/jobs/report", "/jobs/report/runs/run-0"} {
		if body := s.get(path).Body.String(); strings.Count(body, `method="post"`) != 1 || strings.Contains(body, "/pause") {
			t.Errorf("%s offers an action to a client that may only look", path)
		}
	}
}

func TestGoLeadsToAJob(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	for query, want := range map[string]string{"report": "/jobs/report", "rep": "/jobs/report", "o": "/?q=o", "": "/", "zzz": "/?q=zzz"} {
		if got := s.get("/go?q=" + url.QueryEscape(query)).Header().Get("Location"); got != want {
			t.Errorf("%q leads to %q, want %q", query, got, want)
		}
	}
}

// Runs in progress come first on the overview, the slow ones before the others, each with its usual duration. The page of a job begins with the output that failed.
func TestTriage(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	hangsSince := s.lag().UTC().Format(time.RFC3339)
	s.shows("/", "1 job fails", "1 job is stale", "1 job is slow", `data-lasting="">12m</time>`, "usually 5.0 s, on r1/0", "slow for <time", "stale for <time")
	body := s.read("/").Body.String()
	inOrder(t, body, `<h1>`, `aria-labelledby="s-running"`, `<li class="slow">`, `href="/jobs/rebuild"`, `href="/jobs/report"`, `id="filter"`)
	s.shows("/?outcome=slow", "1 of 7 jobs")
	s.shows("/?outcome=late", "2 of 7 jobs")
	s.shows("/jobs/rebuild", "usually takes 5.0 s", "has been running on r1 since "+hangsSince)
	inOrder(t, s.read("/jobs/report").Body.String(), "<h1>", `class="urgent"`, "said &lt;script&gt;", "Coming ticks", ">Run now…<", ">Summary<", ">How long runs took<")
	inOrder(t, s.read("/jobs/nightly").Body.String(), "<h1>", "Coming ticks", ">Summary<", ">Output<") // its newest run ended well
}

// The palette has the states of jobs, those with a problem first, and the forms that a user may send.
func TestPalette(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	s.lag()
	jobs := func() map[string]target {
		var list []target
		if err := json.Unmarshal(s.read("/palette.json").Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		found := map[string]target{}
		for _, one := range list {
			found[one.Kind+" "+one.Name] = one
		}
		return found
	}
	found := jobs()
	for name, want := range map[string]target{
		"job report":          {State: "failing", Acts: []string{"trigger", "cancel", "pause"}},
		"job rebuild":         {State: "slow", Acts: []string{"trigger", "cancel", "pause"}},
		"job off":             {State: "not enabled", Acts: []string{"pause"}},
		"page Late jobs":      {},
		"act Pause all jobs…": {},
	} {
		got, known := found[name]
		if !known || got.State != want.State || !slices.Equal(got.Acts, want.Acts) {
			t.Errorf("%s: %v %+v", name, known, got)
		}
		for _, act := range got.Acts {
			s.shows(got.Href, `<details name="act" id="`+act+`">`)
		}
	}
	s.mayAct = false
	for name, one := range jobs() {
		if one.Kind == "act" || len(one.Acts) > 0 {
			t.Errorf("%s is offered to a viewer", name)
		}
	}
}

func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	at := 0
	for _, part := range parts {
		i := strings.Index(text[at:], part)
		if i < 0 {
			t.Errorf("no %q after what comes before it in %q:\n%s", part, parts, text)
			return
		}
		at += i
	}
}

// TestRedisIsAway: the page says so, with a code by which the browser keeps the last facts. It has the runs that the replica knows, and is loaded again by itself.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.local = Local{Namespace: "shop", Replica: "r1", Silent: time.Now().Add(-5 * time.Minute), Runs: []LocalRun{{Job: "import", RunID: "run-9", Began: time.Now().Add(-10 * time.Minute), LastLine: hostile}}}
	s.server.Close()
	for _, text := range []string{"Replica r1 has had no answer for <time", ">5m<", `href="/jobs/import"`, ">10m<", "run-9", "&lt;script&gt;", "· shop · cronclave", `data-every="3000"`, `http-equiv="refresh" content="3"`} {
		if body := s.get("/").Body.String(); !strings.Contains(body, text) {
			t.Errorf("no %q in %s", text, body)
		}
	}
	for _, path := range []string{"/", "/jobs/a", "/jobs/a/runs/b", "/cluster", "/audit", "/timeline", "/calendar", "/pause"} {
		w := s.get(path)
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "<h1>Redis does not answer</h1>") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// mostFirstPage is how many bytes the first page of 1,000 jobs with 100 runs each may have.
const mostFirstPage = 300_000

// TestFirstPageIsSmall measures pages of fewer jobs and runs, since an embedded Redis is slow with so many keys. Ten runs of a job are on the page, and more do
// not make it larger. The size grows with the number of jobs by the same for each, since few are listed. It is as small in the night in which all fail.
func TestFirstPageIsSmall(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	size := func(jobs int, newest journal.Outcome) int {
		s := newSite(t, "")
		s.crowd(jobs, 10, newest)
		w := s.read("/")
		if w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return w.Body.Len()
	}
	for _, newest := range []journal.Outcome{journal.OutcomeOK, journal.OutcomeFailed} {
		const few, many = rowsOfAPage, rowsOfAPage + 60
		fewer, more := size(few, newest), size(many, newest)
		most := more + (1000-many)*(more-fewer)/(many-few)
		t.Logf("%s: %d bytes with %d jobs, %d with %d", newest, fewer, few, more, many)
		if most > mostFirstPage || fewer < mostFirstPage/10 {
			t.Errorf("%s: %d bytes with 1000 jobs, at most %d", newest, most, mostFirstPage)
		}
	}
}

// A problem of the cluster may be the reason for which all jobs fail: it is on the page whatever their number is.
func TestFailingJobsHideNoProblemOfTheCluster(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.crowd(rowsOfAPage+7, 1, journal.OutcomeFailed)
	s.register(journal.Replica{ID: "r2-abcdefgh", Name: "r2", Version: "v1", Started: time.Now(), ConfigDigest: "b"})
	s.shows("/", "replicas run different configurations", "an embedded Redis", "<h1>107 jobs fail")
	s.shows("/?outcome=failing", `id="filter"`, "107 of 107 jobs", `<a href="/?outcome=failing&amp;page=2">2</a>`)
	s.shows("/?outcome=failing&page=2", "job-0106")
}

// urlAttributes are the attributes that lead a browser somewhere.
var urlAttributes = []string{"href", "src", "action", "formaction", "data-own-zone"}

// TestEverythingIsBelowTheBasePath loads every page below a base path, as a proxy passes it on, and demands that each of its addresses, redirects and
// cookies is below it, and that all links lead to something.
func TestEverythingIsBelowTheBasePath(t *testing.T) {
	t.Parallel()
	const base = "/ops/cron"
	site := newSite(t, "")
	site.base = base
	site.fill()
	s := site.serve(nil)
	resp, _ := s.send(http.MethodPost, base+"/login", "token="+annsToken+"&next=/cluster", "Content-Type: application/x-www-form-urlencoded")
	if to := resp.Header.Get("Location"); len(resp.Cookies()) != 1 || resp.Cookies()[0].Path != base+"/" || to != base+"/cluster" {
		t.Fatalf("login leads to %q with %v", to, resp.Cookies())
	}
	session := "Cookie: cronclave=" + resp.Cookies()[0].Value
	example := map[string]string{} // of a link to each page
	for path := range everyPage() {
		_, body := s.send(http.MethodGet, base+path, "", session, "Accept: text/html")
		nodes, err := parse(body)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, n := range nodes {
			for name, value := range n.attrs {
				if !slices.Contains(urlAttributes, name) || value == "" || strings.HasPrefix(value, "#") {
					continue
				}
				if !strings.HasPrefix(value, base+"/") {
					t.Errorf("%s: %s of %s is %q", path, name, n.name, value)
				} else if name == "href" || name == "src" {
					path, _, _ := strings.Cut(value, "?") // each page once
					example[path] = value
				}
			}
		}
		if got := nodes[0].attrs["data-base"]; got != base {
			t.Errorf("%s: data-base is %q", path, got)
		}
		if got := nodes[0].attrs["data-user"]; got != "ann" {
			t.Errorf("%s: data-user is %q", path, got)
		}
	}
	_, text := s.send(http.MethodGet, base+"/palette.json", "", session)
	var targets []target
	s.must(json.Unmarshal([]byte(text), &targets))
	for _, one := range targets {
		path, _, _ := strings.Cut(base+one.Href, "?") // the script adds the base path
		example[path] = base + one.Href
	}
	for _, link := range example {
		if resp, body := s.send(http.MethodGet, link, "", session, "Accept: text/html"); resp.StatusCode != http.StatusOK && !strings.Contains(body, "no such job") {
			t.Errorf("%s: %d %.300s", link, resp.StatusCode, body)
		}
	}
	for path, want := range map[string]string{base: base + "/", base + "/go?q=backup": base + "/jobs/backup", base + "//cluster": base + "/cluster", base + "/api": base + "/api/"} {
		if resp, _ := s.send(http.MethodGet, path, "", session, "Accept: text/html"); resp.Header.Get("Location") != want {
			t.Errorf("%s leads to %q, want %q", path, resp.Header.Get("Location"), want)
		}
	}
	for path, want := range map[string]string{base + "/cluster?x=1": base + "/login?next=%2Fcluster%3Fx%3D1", "/cluster": base + "/login?next=%2Fcluster"} { // a proxy may take it off
		if resp, _ := s.send(http.MethodGet, path, "", "Accept: text/html"); resp.Header.Get("Location") != want {
			t.Errorf("%s without a session leads to %q, want %q", path, resp.Header.Get("Location"), want)
		}
	}
	if resp, _ := s.send(http.MethodPost, base+"/jobs/off/pause", "reason=x", session, "Content-Type: application/x-www-form-urlencoded"); !strings.HasPrefix(resp.Header.Get("Location"), base+"/jobs/off") {
		t.Errorf("a form leads to %q", resp.Header.Get("Location"))
	}
	if resp, _ := s.send(http.MethodPost, base+"/logout", "", session); resp.Header.Get("Location") != base+"/login" || resp.Cookies()[0].Path != base+"/" || resp.Cookies()[0].MaxAge >= 0 {
		t.Errorf("log out leads to %q with %v", resp.Header.Get("Location"), resp.Cookies())
	}
	_, page := s.send(http.MethodGet, base+"/login", "")
	for _, want := range []string{`href="` + base + `/login.css"`, `action="` + base + `/login"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the login page has no %s: %s", want, page)
		}
	}
}
