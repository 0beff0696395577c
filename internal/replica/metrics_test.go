package replica

import (
	"fmt"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/httpapi"
	"github.com/cronclave/cronclave/internal/journal"
)

// TestLastOKOutlivesReplicas: a replica that starts knows when each of its jobs last ended ok, as far as the history does.
// Promise: P6
func TestLastOKOutlivesReplicas(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()
	r := &Replica{log: hclog.NewNullLogger()}
	if r.journal, err = journal.New(journal.Config{Redis: rdb, Namespace: "x"}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	ends := map[string]string{"well": "ok ok", "ill": "ok ok failed failed failed failed failed failed missed", "never": "failed failed", "busy": "ok running", "removed": "ok"}
	for job, outcomes := range ends {
		for i, outcome := range strings.Fields(outcomes) {
			at := begin.Add(time.Duration(i) * time.Minute)
			rec := journal.Record{RunID: fmt.Sprint(job, i), Job: job, Outcome: outcome, Started: at}
			if outcome != journal.OutcomeRunning {
				rec.Finished = at
			}
			if err := r.journal.Record(t.Context(), []journal.Record{rec}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.cfg.Store(&config.Config{Jobs: []config.Job{{Name: "well"}, {Name: "ill"}, {Name: "never"}, {Name: "busy"}, {Name: "new"}}})
	r.monitor.metrics = httpapi.NewMetrics("v", finalOutcomes(), httpapi.Gauges{
		Leader: func() bool { return false }, RedisUp: func() bool { return true }, ClockOffset: func() (time.Duration, bool) { return 0, true },
		Lateness: func() (time.Duration, bool) { return 0, true }, Cluster: func() *httpapi.Cluster { return nil },
		Running: func() int { return 0 }, ByJob: func() map[string]int { return nil }, LogDropped: func() uint64 { return 0 }})
	r.monitor.configured(r.cfg.Load())
	if err := r.monitor.recallAll(t.Context(), r.journal, names(r.cfg.Load()), true); err != nil {
		t.Fatal(err)
	}
	page := httptest.NewRecorder()
	r.monitor.metrics.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for name, of := range map[string]map[string]time.Duration{
		"cronclave_last_ok_timestamp_seconds{":         {"well": time.Minute, "ill": time.Minute, "busy": 0},
		"cronclave_last_failure_timestamp_seconds{":    {"ill": 8 * time.Minute, "never": time.Minute},
		"cronclave_job_known_since_timestamp_seconds{": {"well": 0, "ill": 0, "never": 0, "busy": 0},
	} {
		for job, after := range of {
			if want := fmt.Sprintf("%sjob_name=%q} %v\n", name, job, float64(begin.Add(after).Unix())); !strings.Contains(page.Body.String(), want) {
				t.Errorf("no %s", want)
			}
		}
		if n := strings.Count(page.Body.String(), "\n"+name); n != len(of) && !strings.Contains(name, "known") {
			t.Errorf("%d jobs have %s:\n%s", n, name, page.Body)
		}
	}
}

// The past of a job comes from its records: tries that were followed by others, and skipped ticks, are neither a success nor a failure.
// Promise: P6
func TestPastOfAJob(t *testing.T) {
	t.Parallel()
	past := pastOf([]journal.Record{{Outcome: journal.OutcomeFailed, Retried: true, Finished: time.Unix(9, 0)}, {Outcome: journal.OutcomeSkipped, Finished: time.Unix(8, 0)},
		{Outcome: journal.OutcomeMissed, Finished: time.Unix(7, 0)}, {Outcome: journal.OutcomeOK, Started: time.Unix(5, 0), Finished: time.Unix(6, 0)}})
	if want := (httpapi.Past{OK: time.Unix(6, 0), Failure: time.Unix(7, 0), Oldest: time.Unix(5, 0)}); past != want {
		t.Errorf("%v, want %v", past, want)
	}
}

// The next tick of a job, and the longest time between two: of a job of working days that is a weekend, also on a Monday.
// Promise: P6
func TestNextTicks(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) // a Monday
	r := clusterReader{now: func() time.Time { return now }}
	jobs := []journal.JobInfo{{Name: "work", Schedule: []string{"0 9 * * 1-5"}, Timezone: "UTC", Enabled: true, Digest: "1"},
		{Name: "off", Schedule: []string{"@daily"}, Timezone: "UTC"}, {Name: "after", After: []string{"work"}, Timezone: "UTC", Enabled: true}}
	expect := func(want map[string]httpapi.NextTick) {
		t.Helper()
		if next := r.nextTicks(jobs); !maps.Equal(next, want) {
			t.Errorf("at %v: %v, want %v", now, next, want)
		}
	}
	const weekend = 72 * time.Hour
	expect(map[string]httpapi.NextTick{"work": {At: now.Add(21 * time.Hour), Period: weekend}})
	now = now.Add(21 * time.Hour)
	expect(map[string]httpapi.NextTick{"work": {At: now.Add(24 * time.Hour), Period: weekend}})
	jobs[0].Schedule, jobs[0].Digest = []string{"@hourly"}, "2"
	expect(map[string]httpapi.NextTick{"work": {At: now.Add(time.Hour), Period: time.Hour}})
	jobs = jobs[1:]
	expect(map[string]httpapi.NextTick{})
}
