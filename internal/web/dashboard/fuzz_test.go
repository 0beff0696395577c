package dashboard

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

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
