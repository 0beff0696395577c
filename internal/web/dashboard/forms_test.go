package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/cluster"
)

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
