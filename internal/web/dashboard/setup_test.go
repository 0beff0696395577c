package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler/run"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hostile is text as a program could print it, or a person could write it, to get markup, commands or another direction of writing onto a page.
const hostile = "<script>alert(1)</script>\x1b[31mred\x1b[0m\x1b]0;title\x07 \"quoted\" 'single' &amp; \u202eesrever"

// site is a cluster with its pages.
type site struct {
	t        testing.TB
	server   *embedded.Server // nil where the Redis is another
	conn     *redisconn.Conn
	journal  *journal.Journal
	operator *cluster.Shared
	handler  http.Handler
	elector  *election.Elector // of replica r1
	replicas []journal.Replica // that are up
	name     string            // of the user
	mayAct   bool
	base     string // the path before all pages
	local    Local
}

// newSite starts a cluster without replicas. Its Redis is the one of the URL, or an embedded one without a URL.
func newSite(t testing.TB, url string) *site {
	t.Helper()
	s := &site{t: t, name: "alice", mayAct: true}
	if url == "" {
		server, err := embedded.Start(embedded.Config{})
		s.must(err)
		t.Cleanup(server.Close)
		s.server, url = server, server.URL()
	}
	s.conn = redistest.Connect(t, url)
	namespace := fmt.Sprintf("site%d", time.Now().UnixNano())
	var err error
	s.journal, err = journal.New(journal.Config{Redis: s.conn, Namespace: namespace, Runs: 100, Timeout: 30 * time.Second})
	s.must(err)
	o, err := cluster.New(cluster.Config{Conn: s.conn, Journal: s.journal, Namespace: namespace})
	s.must(err)
	t.Cleanup(func() { _ = o.Close() })
	s.operator = cluster.NewShared(o, 400*time.Millisecond)
	s.handler = s.fresh()
	locks, err := locking.New(s.conn.LockConfig(namespace, "r1"))
	s.must(err)
	t.Cleanup(func() { _ = locks.Close() })
	s.elector, err = election.New(election.Config{Locks: locks})
	s.must(err)
	return s
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// fresh returns a handler that has read nothing yet.
func (s *site) fresh() http.Handler {
	h, err := New(Config{Operator: s.operator, BasePath: s.base, Local: func() Local { return s.local }, Actor: func(*http.Request) (string, bool) { return s.name, s.mayAct }})
	s.must(err)
	return h
}

// get requests a page.
func (s *site) get(path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// post sends a form.
func (s *site) post(path string, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// register adds a replica that is up from now on.
func (s *site) register(r journal.Replica) {
	s.t.Helper()
	s.replicas = append(s.replicas, r)
	s.renewRegistrations()
}

// renewRegistrations reports that the registered replicas are up still, as they would do themselves: on a slow machine a test may take longer than it
// takes until a silent replica counts as lost.
func (s *site) renewRegistrations() {
	s.t.Helper()
	for _, r := range s.replicas {
		r.Seen = time.Now()
		_, err := s.journal.Register(s.t.Context(), r, time.Hour)
		s.must(err)
	}
}

// record writes records in batches that an embedded Redis takes at once on a slow machine.
func (s *site) record(records []journal.Record) {
	s.t.Helper()
	for batch := range slices.Chunk(records, 200) {
		s.must(s.journal.Record(s.t.Context(), batch))
	}
}

// read requests a page until Redis answers in time for it, which an embedded Redis with many keys may not do at once on a slow machine.
func (s *site) read(path string) (w *httptest.ResponseRecorder) {
	s.t.Helper()
	s.await(path, func() bool {
		s.renewRegistrations()
		w = s.get(path)
		return w.Code != http.StatusServiceUnavailable
	})
	return w
}

// shows fails the test unless a page has all texts.
func (s *site) shows(path string, texts ...string) {
	s.t.Helper()
	w := s.read(path)
	if w.Code != http.StatusOK {
		s.t.Errorf("%s: %d %s", path, w.Code, w.Body)
		return
	}
	for _, text := range texts {
		if !strings.Contains(w.Body.String(), text) {
			s.t.Errorf("%s has no %q:\n%s", path, text, w.Body)
		}
	}
}

func ms(n int64) *int64     { return &n }
func slot(n int) *int       { return &n }
func text(s string) *string { return &s }

// fill has two replicas, of which one is the leader's equal and one differs, jobs of every kind, and runs of every outcome.
func (s *site) fill() {
	s.t.Helper()
	ctx, now := s.t.Context(), time.Now()
	for i, name := range []string{"r1", "r2"} {
		s.register(journal.Replica{ID: name + "-abcdefgh", Name: name, Version: "v1.2.3", Started: now.Add(-time.Hour), ConfigDigest: fmt.Sprint("abcdef0123456789", i), Labels: map[string]string{"zone": "a"}})
	}
	for i, timeout := range []string{`"1h"`, `"2h" ` + hostile} {
		common := []journal.Setting{{Key: "schedule", Value: "–"}, {Key: "timeout", Value: `"24h"`}, {Key: "description", Value: hostile}}
		s.must(s.journal.KeepConfiguration(ctx, journal.ConfigID{Digest: fmt.Sprint("abcdef0123456789", i), Version: "v1.2.3"}, time.Minute, func() journal.Configuration {
			return journal.Configuration{Common: common, Jobs: map[string]journal.JobConfig{"backup": {Digest: "same"}, "report": {Digest: fmt.Sprint(i), Own: map[string]string{"timeout": timeout}}}}
		}))
	}
	info := func(name, schedule string) journal.JobInfo {
		return journal.JobInfo{Name: name, Schedule: []string{schedule}, Timezone: "Europe/Berlin", Enabled: true, Parallel: 1, PerTick: 1, Tags: []string{"night"}, Seen: now}
	}
	child, off, hot := info("child", ""), info("off", "@daily"), info("hot", "* * * * * *")
	child.Schedule, child.After, off.Enabled, hot.Tags = nil, []string{"backup"}, false, []string{hostile}
	s.must(s.journal.DescribeJobs(ctx, []journal.JobInfo{info("backup", "0 3 * * *"), info("report", "@hourly"), child, off, hot}))
	var records []journal.Record
	for i, outcome := range run.Outcomes() {
		ago := time.Duration(i+1) * time.Minute
		if outcome == journal.OutcomeOK { // the newest end is a failure
			ago *= 10
		}
		at := now.Add(-ago).Truncate(time.Second)
		r := journal.Record{RunID: fmt.Sprintf("run-%d", i), Job: "report", Tick: at, Trigger: "schedule", Slot: slot(0), Attempt: 1, Token: int64(100 - i), Replica: "r1", Outcome: outcome, Reason: hostile,
			Started: at, Finished: at.Add(time.Second), DurationMS: ms(1000), Output: text("said " + hostile + "\nlast line\n")}
		switch outcome {
		case journal.OutcomeRunning:
			r.Finished, r.DurationMS, r.Output = time.Time{}, nil, nil
		case journal.OutcomeSkipped, journal.OutcomeMissed:
			r.Started, r.DurationMS, r.Slot, r.Token, r.Attempt, r.Output = time.Time{}, nil, nil, 0, 0, nil
		}
		records = append(records, r)
	}
	tick := now.Add(-5 * time.Minute).Truncate(time.Second)
	died := journal.Record{RunID: "died", Job: "backup", Tick: tick, Slot: slot(0), Attempt: 1, Token: 7, Replica: "r1", Outcome: journal.OutcomeAbandoned, Started: tick, Finished: tick.Add(time.Minute)}
	next := journal.Record{RunID: "next", Job: "backup", Tick: tick, Trigger: "recovery", Slot: slot(0), Attempt: 2, Token: 8, Replica: "r2", Outcome: journal.OutcomeOK, Started: tick.Add(time.Minute), Finished: tick.Add(2 * time.Minute), DurationMS: ms(60000)}
	gone := journal.Record{RunID: "gone", Job: "gone", Outcome: journal.OutcomeOK, Started: tick, Finished: tick}
	s.must(s.journal.Record(ctx, append(records, died, next, gone)))
	result := s.elector.Claim(ctx, []election.Claim{{Lock: election.JobLock("report"), ID: "run-0", Slots: 1, Trigger: "manual", Lease: time.Minute}})[0]
	if election.TermOf(result) == nil {
		s.t.Fatalf("%+v", result)
	}
}

// lag has a job whose run takes much longer than usual, while its ticks are skipped, and a job without a success for days. It returns the start of that run.
func (s *site) lag() (hangsSince time.Time) {
	s.t.Helper()
	ctx, now := s.t.Context(), time.Now()
	hangsSince = now.Add(-12 * time.Minute)
	s.must(s.journal.DescribeJobs(ctx, []journal.JobInfo{
		{Name: "rebuild", Schedule: []string{"30 3 * * *"}, Timezone: "Europe/Berlin", Enabled: true, Parallel: 1, PerTick: 1, Seen: now},
		{Name: "nightly", Schedule: []string{"0 3 * * *"}, Timezone: "UTC", Enabled: true, Parallel: 1, PerTick: 1, Seen: now, StaleAfterMS: (26 * time.Hour).Milliseconds()},
	}))
	ok := func(job string, ago time.Duration) journal.Record {
		at := now.Add(-ago)
		return journal.Record{RunID: fmt.Sprint(job, ago), Job: job, Slot: slot(0), Attempt: 1, Token: 1, Replica: "r1", Outcome: journal.OutcomeOK, Started: at, Finished: at.Add(5 * time.Second), DurationMS: ms(5000)}
	}
	s.must(s.journal.Record(ctx, []journal.Record{ok("rebuild", 3*time.Hour), ok("rebuild", 2*time.Hour), ok("rebuild", time.Hour), ok("nightly", 100*time.Hour),
		{RunID: "hangs", Job: "rebuild", Slot: slot(0), Attempt: 1, Token: 2, Replica: "r1", Outcome: journal.OutcomeRunning, Started: hangsSince}}))
	var skipped []journal.Record
	for n := range 60 {
		at := now.Add(time.Duration(n-600) * time.Second)
		skipped = append(skipped, journal.Record{RunID: fmt.Sprint("skipped", n), Job: "rebuild", Tick: at, Replica: "r1", Outcome: journal.OutcomeSkipped, Reason: "overlap", Finished: at})
	}
	s.must(s.journal.Record(ctx, skipped))
	result := s.elector.Claim(ctx, []election.Claim{{Lock: election.JobLock("rebuild"), ID: "hangs", Slots: 1, Trigger: "manual", Lease: time.Minute}})[0]
	if election.TermOf(result) == nil {
		s.t.Fatalf("%+v", result)
	}
	return hangsSince
}

// failure is a run that ended failed a while ago.
func (s *site) failure(job string, ago time.Duration) journal.Record {
	at := time.Now().Add(-ago)
	return journal.Record{RunID: fmt.Sprint("failure", ago), Job: job, Attempt: 1, Token: 1, Replica: "r1", Outcome: journal.OutcomeFailed, Reason: "exit code 1", Started: at, Finished: at, DurationMS: ms(0)}
}

// await waits until something is so: the facts of pages may be a moment old.
func (s *site) await(what string, so func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for !so() {
		select {
		case <-ctx.Done():
			s.t.Fatalf("%s: waited in vain", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// BenchmarkOverview measures the first page of 1,000 jobs with 100 runs each, cold: with a status that is read anew. CRONCLAVE_TEST_REDIS names the Redis;
// an embedded one is slow with so many keys.
func BenchmarkOverview(b *testing.B) {
	url := os.Getenv("CRONCLAVE_TEST_REDIS")
	if url == "" {
		b.Skip("CRONCLAVE_TEST_REDIS names no Redis")
	}
	s := newSite(b, url)
	s.crowd(1000, 100, journal.OutcomeOK)
	for _, path := range []string{"/", "/jobs/job-0500", "/cluster", "/timeline?span=1h", "/calendar"} {
		for name, prepare := range map[string]func(){"cold": func() { s.handler = s.fresh() }, "shared": func() {}} {
			b.Run(path+" "+name, func(b *testing.B) {
				size := 0
				for b.Loop() {
					prepare()
					w := s.get(path)
					if w.Code != http.StatusOK {
						b.Fatal(w.Code)
					}
					size = w.Body.Len()
				}
				b.ReportMetric(float64(size), "bytes")
			})
		}
	}
}

// crowd describes jobs and records runs of each, of which the newest has an outcome.
func (s *site) crowd(jobs, runs int, newest journal.Outcome) {
	s.t.Helper()
	ctx, now := s.t.Context(), time.Now()
	s.register(journal.Replica{ID: "r1-abcdefgh", Name: "r1", Version: "v1", Started: now, ConfigDigest: "a"})
	var infos []journal.JobInfo
	for i := range jobs {
		name := fmt.Sprintf("job-%04d", i)
		infos = append(infos, journal.JobInfo{Name: name, Schedule: []string{fmt.Sprintf("%d * * * *", i%60)}, Timezone: "UTC", Enabled: true, Parallel: 1, PerTick: 1, Seen: now, Tags: []string{"night", "disk"}})
		var records []journal.Record
		for n := range runs {
			at := now.Add(-time.Duration(n+1) * time.Hour)
			records = append(records, journal.Record{RunID: fmt.Sprintf("%s-1795691760-0-1-abcdefghijklmnop-%d", name, n), Job: name, Tick: at, Trigger: "schedule", Slot: slot(0), Attempt: 1, Token: 1795691760001529,
				Replica: "r1", Outcome: []journal.Outcome{newest, "ok", "ok", "failed", "ok"}[min(n, 1+n%4)], Reason: "", Started: at, Finished: at.Add(time.Second), DurationMS: ms(1000), Output: text("hello\n")})
		}
		s.record(records)
	}
	s.must(s.journal.DescribeJobs(ctx, infos))
}
