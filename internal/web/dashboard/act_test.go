package dashboard

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// TestViewersDoNotAct posts to every action.
func TestViewersDoNotAct(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	s.mayAct = false
	for pattern := range (&handler{}).actionRoutes() {
		path := strings.NewReplacer("POST ", "", "{job}", "report").Replace(pattern)
		if w := s.post(path, url.Values{"job": {"report"}}); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "Not allowed") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if body := s.get("/jobs/report").Body.String(); strings.Contains(body, "<dt>Paused</dt>") {
		t.Error("a viewer has paused a job")
	}
	s.mayAct = true
	for _, path := range []string{"/", "/jobs/report", "/cluster"} {
		if w := s.post(path, nil); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// TestFormsOfAnotherUser do nothing: the page was opened before another user logged in in the same browser.
func TestFormsOfAnotherUser(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	s.must(redirected(s.post("/jobs/backup/pause", nil).Code))
	before, _, err := s.operator.Acts(t.Context(), 100)
	s.must(err)
	type opened struct{ page, action string }
	forms := map[opened]url.Values{{"/jobs/report/runs/run-0", "/jobs/report/cancel"}: nil, {"/pause", "/pause"}: nil, {"/resume", "/resume"}: nil}
	for _, act := range []string{"trigger", "cancel", "pause"} {
		forms[opened{"/jobs/report", "/jobs/report/" + act}] = nil
	}
	for at := range forms {
		forms[at] = s.form(at.page, at.action)
	}
	s.name = "bob"
	for at, form := range forms {
		if w := s.post(at.action, form); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "this page was opened by alice, and you are logged in as bob") {
			t.Errorf("%v: %d %s", at, w.Code, w.Body)
		}
	}
	if acts, _, err := s.operator.Acts(t.Context(), 100); err != nil || len(acts) != len(before) {
		t.Errorf("%v, acts %+v", err, acts)
	}
	s.must(redirected(s.post("/pause", s.form("/pause", "/pause")).Code))
}

// TestPauseAndResume pauses the jobs that a preview lists, and resumes them: no others, though the list has changed before the form was sent.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	form := s.form("/pause?tag=night", "/pause")
	s.must(s.journal.DescribeJobs(t.Context(), []journal.JobInfo{{Name: "newer", Schedule: []string{"@daily"}, Timezone: "UTC", Enabled: true, Parallel: 1, PerTick: 1, Tags: []string{"night"}, Seen: time.Now()}}))
	form.Set("for", "2h")
	form.Set("reason", "disks <b>")
	w := s.post("/pause", form)
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/?said=paused" {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	s.shows("/jobs/report", "disks &lt;b&gt;", "<dt>Paused</dt>", "/jobs/report/resume")
	s.shows("/?outcome=paused", "4 of 6 jobs")
	if w := s.post("/jobs/report/resume", nil); w.Header().Get("Location") != "/jobs/report?said=resumed" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s.shows("/resume", "Resume 3 jobs?")
	form = s.form("/resume", "/resume")
	if w := s.post("/jobs/hot/pause", nil); w.Header().Get("Location") != "/jobs/hot?said=paused" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := s.post("/resume", form); w.Code != http.StatusSeeOther {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s.shows("/resume", "Resume 1 job?", `name="job" value="hot"`)
	if w := s.post("/jobs/hot/resume", nil); w.Code != http.StatusSeeOther {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s.shows("/resume", "No job that matches is paused.")
}

// TestFaultyForms are refused by a page that says why.
func TestFaultyForms(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	for _, tt := range []struct {
		path string
		form url.Values
		code int
		text string
	}{
		{"/pause", nil, 400, "no jobs are selected"},
		{"/resume", nil, 400, "no jobs are selected"},
		{"/pause", url.Values{"job": {"nojob"}}, 404, "nojob"},
		{"/jobs/report/pause", url.Values{"for": {"soon"}}, 400, "write a duration"},
		{"/jobs/report/pause", url.Values{"for": {"-1h"}}, 400, "write a duration"},
		{"/jobs/off/trigger", nil, 409, "not enabled"},
		{"/jobs/nojob/trigger", nil, 404, "nojob"},
		{"/jobs/backup/trigger", url.Values{"tick": {"soon"}}, 400, "tick"},
		{"/jobs/backup/trigger", url.Values{"tick": {"2026-03-01T12:00:00Z"}}, 400, "is no tick"},
		{"/jobs/report/cancel", nil, 400, "no runs are selected"},
		{"/jobs/report/cancel", url.Values{"run": {""}}, 400, "no runs are selected"},
		{"/jobs/nojob/cancel", url.Values{"run": {"none"}}, 404, "nojob"},
		{"/pause", url.Values{"job": {strings.Repeat("x", mostForm)}}, 400, "read the form"},
	} {
		if w := s.post(tt.path, tt.form); w.Code != tt.code || !strings.Contains(w.Body.String(), tt.text) {
			t.Errorf("%s %.80v: %d, want %d with %q: %s", tt.path, tt.form, w.Code, tt.code, tt.text, w.Body)
		}
	}
}

// TestStop asks the holder to stop.
func TestStop(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	if w := s.post("/jobs/report/cancel", url.Values{"run": {"run-0"}}); w.Header().Get("Location") != "/jobs/report?said=stopping" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := s.post("/jobs/backup/cancel", url.Values{"run": {"over"}}); w.Header().Get("Location") != "/jobs/backup?said=idle" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestTriggerLeadsToTheRun plays the replica that starts it.
func TestTriggerLeadsToTheRun(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		answered <- func() error {
			for ctx.Err() == nil {
				asked, err := s.journal.Requests(ctx)
				if err != nil {
					return err
				}
				for _, r := range asked {
					if r.By != "alice" {
						return fmt.Errorf("asked by %q", r.By)
					}
					return s.journal.Answer(ctx, journal.Answer{Request: r.ID, Outcome: journal.OutcomeRunning, Replica: "r1", RunID: "run/9"})
				}
			}
			return ctx.Err()
		}()
	}()
	w := s.post("/jobs/backup/trigger", nil)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if w.Header().Get("Location") != "/jobs/backup/runs/run%2F9?said=started" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// TestOutputOfARunUnderWay shows the lines that its replica publishes.
func TestOutputOfARunUnderWay(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	s.shows("/jobs/report/runs/run-0", "Its replica has not published its output yet", "data-every=")
	ctx := t.Context()
	if followed, err := s.journal.Followed(ctx, []string{"report"}); err != nil || len(followed) != 1 {
		t.Errorf("the page does not ask for output: %v %v", followed, err)
	}
	s.publish(ctx, "run-0", journal.Chunk{})
	s.shows("/jobs/report/runs/run-0", "Nothing was printed yet.")
	s.publish(ctx, "run-0", journal.Chunk{Lines: []journal.Line{{Text: "first " + hostile}, {Text: "second"}}})
	s.shows("/jobs/report/runs/run-0", "first &lt;script&gt;", "second")
	s.shows("/jobs/report", "first &lt;script&gt;", "last line")
	s.publish(ctx, "late", journal.Chunk{Offset: 70_000, Lines: []journal.Line{{Text: "line"}}})
	h := &handler{operator: s.operator}
	run := journal.Record{Job: "report", RunID: "late", Outcome: journal.OutcomeRunning}
	if o, err := h.outputOf(ctx, run); err != nil || !strings.HasPrefix(o.Text, "[… 70 kB left out …]\nline") {
		t.Errorf("%+v %v", o, err)
	}
	s.server.Close()
	if o, err := h.outputOf(ctx, run); err != nil || !strings.Contains(o.Empty, "could not be read in time") {
		t.Errorf("%+v %v", o, err)
	}
}

// publish publishes output of a run that is under way.
func (s *site) publish(ctx context.Context, run string, c journal.Chunk) {
	s.t.Helper()
	_, err := s.journal.Publish(ctx, "report", run, c)
	s.must(err)
}

// TestPreviewFitsAForm: more jobs than a form may name are not in it, and the page says so.
func TestPreviewFitsAForm(t *testing.T) {
	t.Parallel()
	files, err := readAssets("")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parsePages(files)
	if err != nil {
		t.Fatal(err)
	}
	st := &cluster.Status{Now: noon}
	for i := range 1002 {
		st.Jobs = append(st.Jobs, cluster.Job{Name: fmt.Sprintf("job-%04d-%s", i, strings.Repeat("x", 100)), Enabled: true})
	}
	h := &handler{actor: func(*http.Request) (string, bool) { return "alice", true }, assets: files, pages: parsed}
	s := &site{t: t, handler: h.viewHandler(func(r *http.Request) (*page, error) {
		return bulkOf(st, filterOf(r.URL.Query()), &bulk{Verb: "Pause", Action: "/pause", Pausing: true}), nil
	})}
	s.shows("/pause", "Pause 1000 jobs?", "2 more match")
	form := s.form("/pause", "/pause")
	if len(form["job"]) != 1000 || len(form.Encode()) > 256<<10 {
		t.Errorf("%d jobs, %d bytes", len(form["job"]), len(form.Encode()))
	}
}

// TestStopIsForTheRunsShown: a run that began after the page was made goes on.
func TestStopIsForTheRunsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	form := s.form("/jobs/report", "/jobs/report/cancel")
	if !slices.Equal(form["run"], []string{"run-0"}) {
		t.Errorf("%v", form)
	}
	if w := s.post("/jobs/report/cancel", url.Values{"run": {"over", "over too"}}); w.Header().Get("Location") != "/jobs/report?said=idle" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := s.post("/jobs/report/cancel", url.Values{"run": {"over", "run-0"}}); w.Header().Get("Location") != "/jobs/report?said=stopping" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// form is what a browser sends of a form of a page, which goes to an action.
func (s *site) form(path, action string) url.Values {
	s.t.Helper()
	nodes, err := parse(s.get(path).Body.String())
	s.must(err)
	values := url.Values{}
	within := -1 // how deep the form is
	for _, n := range nodes {
		switch {
		case n.name == "form" && n.attrs["action"] == action && n.attrs["method"] == "post":
			within = len(n.path)
		case within >= 0 && len(n.path) <= within:
			return values
		case within >= 0 && n.name == "input" && n.attrs["name"] != "":
			values.Add(n.attrs["name"], n.attrs["value"])
		}
	}
	if within < 0 {
		s.t.Fatalf("%s has no form for %s", path, action)
	}
	return values
}

// FuzzForms sends any form to each action, and any query to each page: none makes the server fail. No replica is up, so that no answer waits for a run.
func FuzzForms(f *testing.F) {
	s := newSite(f, "")
	var infos []journal.JobInfo
	for name, schedule := range map[string]string{"report": "@hourly", "backup": "0 3 * * *"} {
		infos = append(infos, journal.JobInfo{Name: name, Schedule: []string{schedule}, Timezone: "Europe/Berlin", Enabled: true, Parallel: 1, PerTick: 1, Tags: []string{"night"}, Seen: time.Now()})
	}
	s.must(s.journal.DescribeJobs(f.Context(), infos))
	at := time.Now().Add(-time.Minute)
	s.must(s.journal.Record(f.Context(), []journal.Record{{RunID: "run-1", Job: "report", Tick: at, Slot: slot(0), Attempt: 1, Token: 7, Replica: "r1", Outcome: journal.OutcomeFailed, Reason: hostile,
		Started: at, Finished: at.Add(time.Second), DurationMS: ms(1000), Output: text(hostile)}}))
	patterns := slices.Concat(slices.Sorted(maps.Keys((&handler{}).actionRoutes())), slices.Sorted(maps.Keys((&handler{}).viewRoutes())), []string{"GET /go", "GET /palette.json", "GET /calendar.ics", "GET /assets/{id}"})
	for i := range patterns {
		for _, form := range []string{"", "job=report&reason=x", "job=report&job=backup&for=2h&reason=disks", "for=-1h", "for=9999999999999h", "run=run-1&run=", "tick=2026-03-01T03:00:00Z", "tick=9999-12-31T23:59:59Z",
			"tick=0001-01-01T00:00:00%2B23:59", "reason=a%0Ab", "reason=%ff%00", "job=%zz", "a;b", "at=2026-11-01+03:00&span=7d&by=job&zone=Asia/Tokyo", "at=9999-12-31T23:59:59Z&span=30d", "at=0001-01-01T00:00:00Z",
			"q=%5B&tag=night&outcome=failing&page=99999999999999999999", "zone=../../etc/passwd", "said=%3Cb%3E", "page=-1&limit=0"} {
			f.Add(uint8(i), "report", "run-1", form)
		}
		f.Add(uint8(i), "", "/../", "x")
		f.Add(uint8(i), "<b>\x00\xff", strings.Repeat("x", 300), "job="+strings.Repeat("y", 300))
	}
	f.Fuzz(func(t *testing.T, route uint8, job, id, form string) {
		method, path, _ := strings.Cut(patterns[int(route)%len(patterns)], " ")
		path = strings.NewReplacer("{$}", "", "{job}", url.PathEscape(job), "{id}", url.PathEscape(id)).Replace(path)
		r := httptest.NewRequest(method, "/", nil)
		var err error
		if r.URL, err = url.Parse(path); err != nil {
			t.Skip()
		}
		if method == http.MethodPost {
			r = httptest.NewRequest(method, "/", strings.NewReader(form))
			r.URL, _ = url.Parse(path)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		} else {
			r.URL.RawQuery = form
		}
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Fatalf("%s %s %q: %d %s", method, path, form, w.Code, w.Body)
		}
		if w.Code == http.StatusSeeOther && !strings.HasPrefix(w.Header().Get("Location"), "/") || strings.HasPrefix(w.Header().Get("Location"), "//") {
			t.Fatalf("%s %s %q leads to %q", method, path, form, w.Header().Get("Location"))
		}
	})
}
