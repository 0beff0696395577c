package metrics

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// expectLines wants lines of /metrics, and that others are not there: those that begin with "no ".
func expectLines(t *testing.T, m *Metrics, lines ...string) {
	t.Helper()
	body := scrape(m)
	for _, want := range lines {
		absent, none := strings.CutPrefix(want, "no ")
		if found := strings.Contains(body, "\n"+strings.TrimPrefix(want, "no ")); found == none {
			t.Errorf("wanted: %s; found %q: %v in\n%s", want, absent, found, body)
		}
	}
}

// scrape returns the answer of /metrics.
func scrape(m *Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func quietGauges() Gauges {
	return Gauges{Leader: func() bool { return true }, RedisUp: func() bool { return true },
		ClockOffset: func() (time.Duration, bool) { return 1500 * time.Millisecond, true },
		Lateness:    func() (time.Duration, bool) { return 250 * time.Millisecond, true },
		Running:     func() int { return 3 }, ByJob: func() map[string]int { return map[string]int{"a": 2, "b": 1} }, LogDropped: func() uint64 { return 4 }, SpansLost: func() uint64 { return 5 },
		Cluster: func() *Cluster { return nil }}
}

func newMetrics(g Gauges) *Metrics { return New("v1", g) }

func took(d time.Duration) *int64 {
	ms := d.Milliseconds()
	return &ms
}

// wholeCluster is the state that a leader has read.
func wholeCluster() *Cluster {
	return &Cluster{Replicas: map[string]int{"up": 2, "silent": 0}, Expected: 3, Lost: map[string]time.Time{"r3": time.Unix(500, 0)}, Configurations: 2, Paused: []string{"b"},
		Ticks: map[string]NextTick{"a": {time.Unix(2000, 0), time.Hour}, "b": {At: time.Unix(3000, 0)}}, Pools: map[string]PoolUse{"db": {Slots: 4, Held: 3}},
		Late: []LateJob{{"a", "slow"}}, Targets: map[string]journal.TargetState{"ops": {Sent: 5, Waiting: 1, Oldest: time.Unix(700, 0)}}}
}

func TestMetrics(t *testing.T) {
	g := quietGauges()
	g.Cluster = wholeCluster
	m := newMetrics(g)
	m.SetJobs([]Job{{Name: "a", Retries: true, Recovers: true}, {Name: "b"}}, []string{"db"}, time.Unix(900, 0))
	m.countRecord(journal.Record{Job: "a", Outcome: "ok", Finished: time.Unix(1000, 5e8), DurationMS: took(2 * time.Second)})
	m.countRecord(journal.Record{Job: "a", Outcome: "missed", Reason: "down", Ticks: 7, Finished: time.Unix(1001, 0)})
	m.countRecord(journal.Record{Job: "b", Outcome: "failed", DurationMS: took(time.Second), Finished: time.Unix(1002, 0)})
	m.countRecord(journal.Record{Job: "b", Outcome: "failed", DurationMS: took(0)}) // in less than a millisecond
	m.Started(200 * time.Millisecond)
	m.Started(-time.Millisecond) // by clocks that are a little apart
	m.Waited("db", 5*time.Second)
	m.Waiting("db")()
	m.Waiting("db")
	m.Renewed(5 * time.Second)
	m.Lost()
	m.countRecord(journal.Record{Job: "a", Outcome: "failed", Retried: true})
	m.countRecord(journal.Record{Job: "a", Outcome: "failed", Retried: true})
	m.Recovering("a")
	m.Configured(time.Unix(950, 0), "2026f")
	m.Refused()
	expectLines(t, m, `cronclave_outcomes_total{job_name="a",outcome="ok"} 1`, `cronclave_outcomes_total{job_name="a",outcome="missed"} 7`,
		`cronclave_outcome_reasons_total{job_name="a",outcome="missed",reason="down"} 7`,
		`cronclave_run_seconds_total{job_name="a"} 2`, `cronclave_last_ok_timestamp_seconds{job_name="a"} 1000.5`, `cronclave_lease_renewal_left_seconds_sum 5`,
		`cronclave_last_failure_timestamp_seconds{job_name="a"} 1001`, `cronclave_last_failure_timestamp_seconds{job_name="b"} 1002`,
		`cronclave_run_duration_seconds_bucket{le="0.5"} 1`, `cronclave_run_duration_seconds_bucket{le="1"} 2`, `cronclave_run_duration_seconds_count 3`,
		`cronclave_start_delay_seconds_bucket{le="0.01"} 1`, `cronclave_start_delay_seconds_bucket{le="0.3"} 2`, `cronclave_start_delay_seconds_sum 0.2`,
		`cronclave_pool_wait_seconds_bucket{pool="db",le="1"} 0`, `cronclave_pool_wait_seconds_bucket{pool="db",le="10"} 1`, `cronclave_pool_waiting_runs{pool="db"} 1`,
		`cronclave_leases_lost_total 1`, `cronclave_tries_failed_total{job_name="a"} 2`, `cronclave_recoveries_total{job_name="a"} 1`,
		`cronclave_leader 1`, `cronclave_redis_up 1`, `cronclave_clock_offset_seconds 1.5`, `cronclave_lateness_seconds 0.25`, `cronclave_runs 3`,
		`cronclave_job_runs{job_name="a"} 2`, `cronclave_job_runs{job_name="b"} 1`, `cronclave_build_info{version="v1"} 1`, `cronclave_log_lines_dropped_total 4`, `cronclave_trace_spans_dropped_total 5`,
		`cronclave_config_last_reload_successful 0`, `cronclave_config_last_reload_success_timestamp_seconds 950`, `cronclave_zone_data_info{version="2026f"} 1`,
		`cronclave_replicas{state="up"} 2`, `cronclave_replicas{state="silent"} 0`, `cronclave_replicas_expected 3`, `cronclave_replica_lost_timestamp_seconds{name="r3"} 500`, `cronclave_configurations 2`,
		`cronclave_job_late{condition="slow",job_name="a"} 1`, `cronclave_notifications{result="sent",target="ops"} 5`, `cronclave_notifications{result="refused",target="ops"} 0`,
		`cronclave_notifications_waiting{target="ops"} 1`, `cronclave_notifications_oldest_timestamp_seconds{target="ops"} 700`,
		`cronclave_job_paused{job_name="b"} 1`, `no cronclave_job_paused{job_name="a"}`,
		`cronclave_job_next_tick_timestamp_seconds{job_name="a"} 2000`, `cronclave_job_period_seconds{job_name="a"} 3600`, `no cronclave_job_period_seconds{job_name="b"}`,
		`cronclave_pool_slots{pool="db"} 4`, `cronclave_pool_held_slots{pool="db"} 3`, "go_goroutines ", "process_open_fds ")
	if faults, err := testutil.GatherAndLint(m.registry); err != nil || len(faults) > 0 {
		t.Errorf("against the conventions: %v, %v", faults, err)
	}
}

// The counters of a job and of a pool are there before anything happens: the first event would be no increase otherwise.
// Promise: P6
func TestCountersStartAtZero(t *testing.T) {
	m := newMetrics(quietGauges())
	m.SetJobs([]Job{{Name: "plain"}, {Name: "again", Retries: true, Recovers: true}}, []string{"db"}, time.Unix(900, 0))
	var want []string
	for _, job := range []string{"plain", "again"} {
		for _, outcome := range m.names {
			want = append(want, `cronclave_outcomes_total{job_name="`+job+`",outcome="`+string(outcome)+`"} 0`)
		}
		want = append(want, `cronclave_run_seconds_total{job_name="`+job+`"} 0`, `cronclave_job_known_since_timestamp_seconds{job_name="`+job+`"} 900`)
	}
	expectLines(t, m, append(want, `cronclave_tries_failed_total{job_name="again"} 0`, `cronclave_recoveries_total{job_name="again"} 0`,
		`cronclave_pool_wait_seconds_count{pool="db"} 0`, `cronclave_pool_waiting_runs{pool="db"} 0`, `cronclave_leases_lost_total 0`,
		`no cronclave_tries_failed_total{job_name="plain"}`, `no cronclave_recoveries_total{job_name="plain"}`, `no cronclave_outcome_reasons_total`,
		`no cronclave_last_ok`, `no cronclave_last_failure`)...)
	m.SetJobs([]Job{{Name: "plain"}, {Name: "new"}}, nil, time.Unix(1000, 0))
	expectLines(t, m, `cronclave_job_known_since_timestamp_seconds{job_name="plain"} 900`, `cronclave_job_known_since_timestamp_seconds{job_name="new"} 1000`,
		`cronclave_outcomes_total{job_name="new",outcome="ok"} 0`, `no cronclave_pool_wait_seconds_count{pool="db"}`, `no cronclave_pool_waiting_runs`)
}

// A value that is not known is no number, since an offset of 0 is a good one; and of a Redis that does not answer nothing is reported that was read from it.
// Promise: P6
func TestUnknownIsNoNumber(t *testing.T) {
	g := quietGauges()
	g.ClockOffset, g.RedisUp = func() (time.Duration, bool) { return time.Hour, false }, func() bool { return false }
	g.Lateness, g.Cluster = g.ClockOffset, wholeCluster
	m := newMetrics(g)
	expectLines(t, m, "cronclave_clock_offset_seconds NaN\n", "cronclave_lateness_seconds NaN\n", "cronclave_redis_up 0\n", "no cronclave_replicas", "no cronclave_replica_lost",
		"no cronclave_configurations", "no cronclave_job_paused", "no cronclave_job_next", "no cronclave_job_period", "no cronclave_pool_slots", "no cronclave_pool_held")
}

// The last run that ended ok, and the last that failed, are the latest, in whatever order they become known; a job is known since its oldest record.
// Promise: P6
func TestLastOKIsTheLatest(t *testing.T) {
	m := newMetrics(quietGauges())
	m.SetJobs([]Job{{Name: "told"}, {Name: "ran"}}, nil, time.Unix(1500, 0))
	m.Recall("told", Past{OK: time.Unix(1000, 0), Oldest: time.Unix(100, 0)})
	m.countRecord(journal.Record{Job: "ran", Outcome: "ok", Finished: time.Unix(2000, 0), DurationMS: took(0)})
	m.Recall("ran", Past{OK: time.Unix(1000, 0), Failure: time.Unix(900, 0), Oldest: time.Unix(1600, 0)}) // the history was read before that, and reports it now
	m.countRecord(journal.Record{Job: "told", Outcome: "failed", Finished: time.Unix(3000, 0), DurationMS: took(0)})
	m.Recall("told", Past{Failure: time.Unix(2900, 0)})
	m.Recall("removed", Past{OK: time.Unix(1000, 0)})
	expectLines(t, m, `cronclave_last_ok_timestamp_seconds{job_name="told"} 1000`, `cronclave_last_ok_timestamp_seconds{job_name="ran"} 2000`,
		`cronclave_last_failure_timestamp_seconds{job_name="told"} 3000`, `cronclave_last_failure_timestamp_seconds{job_name="ran"} 900`,
		`cronclave_outcomes_total{job_name="ran",outcome="ok"} 1`, `cronclave_job_known_since_timestamp_seconds{job_name="told"} 100`,
		`cronclave_job_known_since_timestamp_seconds{job_name="ran"} 1500`, `no cronclave_last_ok_timestamp_seconds{job_name="removed"}`)
}

// A job that was removed leaves nothing behind, even if its last run ended after that.
func TestMetricsOfRemovedJobsGo(t *testing.T) {
	g := quietGauges()
	g.ByJob = func() map[string]int { return nil } // they have ended
	m := newMetrics(g)
	m.SetJobs([]Job{{Name: "a", Retries: true, Recovers: true}, {Name: "b"}}, nil, time.Unix(900, 0))
	for range 2 {
		m.countRecord(journal.Record{Job: "a", Outcome: "ok", Finished: time.Unix(1000, 0), DurationMS: took(time.Second)}) // the second time it is removed already
		m.countRecord(journal.Record{Job: "a", Outcome: "missed", Reason: "down", Finished: time.Unix(1000, 0)})
		m.countRecord(journal.Record{Job: "b", Outcome: "failed", DurationMS: took(time.Second)})
		m.countRecord(journal.Record{Job: "a", Outcome: "failed", Retried: true})
		m.Recovering("a")
		m.SetJobs([]Job{{Name: "b"}}, nil, time.Unix(1100, 0))
		if body := scrape(m); strings.Contains(body, `job_name="a"`) || !strings.Contains(body, `job_name="b"`) {
			t.Errorf("removed, and still there, or another one is gone:\n%s", body)
		}
	}
}

// TestEachMetricIsDocumented: docs/metrics.md has all of ours, and no others.
func TestEachMetricIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^- `(cronclave_[a-z_]+)[^`]*`: ").FindAllSubmatch(text, -1) {
		documented = append(documented, string(m[1]))
	}
	g := quietGauges()
	g.Cluster = wholeCluster
	m := newMetrics(g)
	m.SetJobs([]Job{{Name: "a", Retries: true, Recovers: true}}, []string{"p"}, time.Unix(900, 0))
	m.countRecord(journal.Record{Job: "a", Outcome: "ok", Finished: time.Unix(1000, 0), DurationMS: took(time.Second)})
	m.countRecord(journal.Record{Job: "a", Outcome: "missed", Reason: "down", Finished: time.Unix(1000, 0)})
	m.Configured(time.Unix(1000, 0), "2026f")
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "cronclave_") {
			ours = append(ours, f.GetName())
		}
	}
	slices.Sort(documented)
	if !slices.Equal(documented, ours) {
		t.Errorf("documented are %q, and there are %q", documented, ours)
	}
}

// A pool that was removed leaves nothing behind, even if runs still began to wait for it after that: they have the older configuration.
func TestMetricsOfRemovedPoolsGo(t *testing.T) {
	m := newMetrics(quietGauges())
	m.SetJobs(nil, []string{"db", "gone"}, time.Unix(900, 0))
	for range 2 {
		m.Waiting("gone")() // the second time it is removed already
		m.Waited("gone", time.Second)
		over := m.Waiting("gone")
		m.SetJobs(nil, []string{"db"}, time.Unix(1100, 0))
		expectLines(t, m, `cronclave_pool_waiting_runs{pool="db"} 0`, `no cronclave_pool_waiting_runs{pool="gone"}`, `no cronclave_pool_wait_seconds_count{pool="gone"}`)
		over()
	}
}
