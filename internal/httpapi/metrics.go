package httpapi

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics count what a replica does, in Prometheus' way. Names and meaning are in docs/metrics.md. Methods may be called by several goroutines.
type Metrics struct {
	registry *prometheus.Registry
	outcomes *prometheus.CounterVec
	runTime  *prometheus.CounterVec
	lastOK   *prometheus.GaugeVec
	left     prometheus.Histogram
	lost     prometheus.Counter

	mu   sync.Mutex
	jobs map[string]bool // of which something was counted
}

// Outcome is how ticks or a run of a job ended.
type Outcome struct {
	Job, Outcome string
	// Reason is one of a few words, or "".
	Reason string
	// Ticks is how many ended so; 0 counts as 1.
	Ticks int
	// Finished is when, and Took how long the run lasted; 0 for ticks without a run.
	Finished time.Time
	Took     time.Duration
}

// Gauges are asked for when somebody wants to know.
type Gauges struct {
	Leader      func() bool          // whether the replica leads
	ClockOffset func() time.Duration // this machine's clock less that of Redis
	Running     func() int           // runs under way
}

// NewMetrics makes the metrics of a replica of a version.
func NewMetrics(version string, g Gauges) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), jobs: map[string]bool{},
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cronclave_outcomes_total",
			Help: "Ticks and runs by how they ended, each counted once in the cluster, by the replica that told it first."}, []string{"job", "outcome", "reason"}),
		runTime: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cronclave_run_seconds_total",
			Help: "Time that runs took, of those that this replica counts in cronclave_outcomes_total."}, []string{"job"}),
		lastOK: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cronclave_last_ok_timestamp_seconds",
			Help: "When a run last ended ok on this replica."}, []string{"job"}),
		left: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "cronclave_lease_renewal_left_seconds", Buckets: []float64{.1, .3, 1, 2, 3, 5, 10, 20, 30, 60},
			Help: "What was left of a lease when a renewal came through: near zero it was nearly lost."}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "cronclave_leases_lost_total", Help: "Leases that this replica lost."}),
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	m.registry.MustRegister(m.outcomes, m.runTime, m.lastOK, m.left, m.lost,
		gauge("cronclave_leader", "1 for the replica that leads the cluster's housekeeping, else 0.", func() float64 { return number(g.Leader()) }),
		gauge("cronclave_clock_offset_seconds", "This machine's clock less that of Redis.", func() float64 { return g.ClockOffset().Seconds() }),
		gauge("cronclave_runs", "Runs under way on this replica.", func() float64 { return float64(g.Running()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "cronclave_build_info", Help: "1, with the version as a label.",
			ConstLabels: prometheus.Labels{"version": version}}, func() float64 { return 1 }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Ended counts an outcome.
func (m *Metrics) Ended(o Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs[o.Job] = true
	m.outcomes.WithLabelValues(o.Job, o.Outcome, o.Reason).Add(float64(max(o.Ticks, 1)))
	if o.Took > 0 {
		m.runTime.WithLabelValues(o.Job).Add(o.Took.Seconds())
	}
	if o.Outcome == "ok" {
		m.lastOK.WithLabelValues(o.Job).Set(float64(o.Finished.UnixMilli()) / 1000)
	}
}

// Renewed notes what was left of a lease when it was renewed.
func (m *Metrics) Renewed(left time.Duration) { m.left.Observe(left.Seconds()) }

// Lost counts a lease.
func (m *Metrics) Lost() { m.lost.Inc() }

// Keep drops what was counted of jobs that are there no more: each label costs memory here and where metrics are kept. What ends of such a job later
// counts until Keep is called again.
func (m *Metrics) Keep(known func(job string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for job := range m.jobs {
		if known(job) {
			continue
		}
		of := prometheus.Labels{"job": job}
		m.outcomes.DeletePartialMatch(of)
		m.runTime.DeletePartialMatch(of)
		m.lastOK.DeletePartialMatch(of)
		delete(m.jobs, job)
	}
}

// Handler answers with all of them.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}
