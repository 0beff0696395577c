package replica

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/web/metrics"
	"github.com/cronclave/cronclave/scheduler/run"
)

// quietServer returns the metrics of a replica on which nothing happens, and the view that [monitor.openServer] opens with them.
func quietServer() (*metrics.Metrics, *clusterView) {
	return metrics.New("v", metrics.Gauges{
		Leader: func() bool { return false }, RedisUp: func() bool { return true }, ClockOffset: func() (time.Duration, bool) { return 0, true },
		Lateness: func() (time.Duration, bool) { return 0, true }, Cluster: func() *metrics.Cluster { return nil },
		Running: func() int { return 0 }, ByJob: func() map[string]int { return nil }, LogDropped: func() uint64 { return 0 }, SpansLost: func() uint64 { return 0 }}), new(clusterView)
}

func scrape(m *monitor) string {
	page := httptest.NewRecorder()
	m.metrics.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	return page.Body.String()
}

// A refused configuration shows until the next good one.
func TestReloadsInMetrics(t *testing.T) {
	t.Parallel()
	r := &Replica{log: hclog.NewNullLogger()}
	r.monitor.metrics, r.monitor.view = quietServer()
	expect := func(successful string) {
		t.Helper()
		if page := scrape(&r.monitor); !strings.Contains(page, "\ncronclave_config_last_reload_successful "+successful+"\n") {
			t.Errorf("wanted %s in\n%s", successful, page)
		}
	}
	r.monitor.setConfigured(&config.Config{})
	expect("1")
	(&reloader{log: r.log, refused: &r.refused, monitor: &r.monitor}).refuseConfig(errors.New("a fault"))
	expect("0")
	r.monitor.setConfigured(&config.Config{})
	expect("1")
}

// A recovery counts once, when its first start is written, however many tries it has.
// Promise: P6
func TestRecoveriesInMetrics(t *testing.T) {
	t.Parallel()
	var m monitor
	m.metrics, m.view = quietServer()
	m.setConfigured(&config.Config{Jobs: []config.Job{{Name: "j", Recover: 2, Enabled: true}}})
	m.countRecoveries([]journal.Record{
		{Job: "j", Outcome: journal.OutcomeRunning, Trigger: "recovery", Attempt: 2},
		{Job: "j", Outcome: journal.OutcomeRunning, Trigger: "recovery", Attempt: 3, FailedTries: 1},
		{Job: "j", Outcome: journal.OutcomeFailed, Trigger: "recovery", Attempt: 3},
		{Job: "j", Outcome: journal.OutcomeRunning, Trigger: "schedule", Attempt: 1},
	})
	if page := scrape(&m); !strings.Contains(page, `cronclave_recoveries_total{job_name="j"} 1`) {
		t.Error(page)
	}
}

// onePool has a slot as soon as it is closed.
type onePool struct {
	run.Pools
	free chan struct{}
}

// AcquirePool waits for the slot.
func (p onePool) AcquirePool(context.Context, election.Entry) (*election.Term, error) {
	<-p.free
	return nil, nil
}

// A run counts as waiting for a pool while it does.
func TestPoolWaitsInMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m monitor
		m.metrics, m.view = quietServer()
		m.setConfigured(&config.Config{Pools: map[string]config.Pool{"db": {Slots: 1}}})
		pool := onePool{free: make(chan struct{})}
		var waiter sync.WaitGroup
		waiter.Go(func() { _, _ = m.countedPools(pool).AcquirePool(t.Context(), election.Entry{Pool: "db"}) })
		for _, want := range []string{"1", "0"} {
			synctest.Wait()
			if page := scrape(&m); !strings.Contains(page, `cronclave_pool_waiting_runs{pool="db"} `+want) {
				t.Errorf("wanted %s in\n%s", want, page)
			}
			if want == "1" {
				close(pool.free)
			}
		}
		waiter.Wait()
	})
}

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
	if r.journal, err = journal.New(journal.Config{Redis: rdb, Namespace: "x", Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	ends := map[string]string{"well": "ok ok", "ill": "ok ok failed failed failed failed failed failed missed", "never": "failed failed", "busy": "ok running", "removed": "ok", "disabled": "failed"}
	for job, outcomes := range ends {
		for i, text := range strings.Fields(outcomes) {
			outcome := journal.Outcome(text)
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
	r.cfg.Store(&config.Config{Jobs: []config.Job{{Name: "well", Enabled: true}, {Name: "ill", Enabled: true}, {Name: "never", Enabled: true},
		{Name: "busy", Enabled: true}, {Name: "new", Enabled: true}, {Name: "disabled"}}})
	r.monitor.metrics, r.monitor.view = quietServer()
	r.monitor.setConfigured(r.cfg.Load())
	if err := r.monitor.recallAll(t.Context(), r.journal, enabledNames(r.cfg.Load()), true); err != nil {
		t.Fatal(err)
	}
	page := scrape(&r.monitor)
	for name, of := range map[string]map[string]time.Duration{
		"cronclave_last_ok_timestamp_seconds{":         {"well": time.Minute, "ill": time.Minute, "busy": 0},
		"cronclave_last_failure_timestamp_seconds{":    {"ill": 8 * time.Minute, "never": time.Minute},
		"cronclave_job_known_since_timestamp_seconds{": {"well": 0, "ill": 0, "never": 0, "busy": 0},
	} {
		for job, after := range of {
			if want := fmt.Sprintf("%sjob_name=%q} %v\n", name, job, float64(begin.Add(after).Unix())); !strings.Contains(page, want) {
				t.Errorf("no %s", want)
			}
		}
		if n := strings.Count(page, "\n"+name); n != len(of) && !strings.Contains(name, "known") {
			t.Errorf("%d jobs have %s:\n%s", n, name, page)
		}
	}
}

// The past of a job comes from its records: tries that were followed by others, and skipped ticks, are neither a success nor a failure.
// Promise: P6
func TestPastOfAJob(t *testing.T) {
	t.Parallel()
	past := pastOf([]journal.Record{{Outcome: journal.OutcomeFailed, Retried: true, Finished: time.Unix(9, 0)}, {Outcome: journal.OutcomeSkipped, Finished: time.Unix(8, 0)},
		{Outcome: journal.OutcomeMissed, Finished: time.Unix(7, 0)}, {Outcome: journal.OutcomeOK, Started: time.Unix(5, 0), Finished: time.Unix(6, 0)}})
	if want := (metrics.Past{OK: time.Unix(6, 0), Failure: time.Unix(7, 0), Oldest: time.Unix(5, 0)}); past != want {
		t.Errorf("%v, want %v", past, want)
	}
}
