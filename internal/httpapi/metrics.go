package httpapi

import (
	"math"
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
	tries    *prometheus.CounterVec
	runTime  *prometheus.CounterVec
	lastOK   *prometheus.GaugeVec
	duration prometheus.Histogram
	delay    prometheus.Histogram
	poolWait *prometheus.HistogramVec
	left     prometheus.Histogram
	lost     prometheus.Counter

	mu   sync.Mutex
	jobs map[string]time.Time // of which something was counted, with their last ok; zero if there was none
}

// Outcome is how ticks or a run of a job ended.
type Outcome struct {
	Job, Outcome string
	// Reason is one of a few words, or "".
	Reason string
	// Ticks is how many ended so; 0 counts as 1.
	Ticks    int
	Finished time.Time
	// Ran is whether there was a run, and Took how long it lasted.
	Ran  bool
	Took time.Duration
}

// Gauges are asked for when somebody wants to know, by several goroutines at once.
type Gauges struct {
	Leader      func() bool                  // whether the replica leads
	RedisUp     func() bool                  // whether Redis answers, which may take a while to find out
	ClockOffset func() (time.Duration, bool) // this machine's clock less that of Redis, if that is known
	Running     func() int                   // runs under way
	ByJob       func() map[string]int        // of which jobs they are
	LogDropped  func() uint64                // lines that were dropped from the log
}

// Buckets, in seconds. None has the label of a job: see docs/metrics.md.
var (
	durationBuckets = []float64{.1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600} // the last is the default timeout
	delayBuckets    = []float64{.01, .03, .1, .3, 1, 3, 10, 30, 60, 300, 900, 3600}            // the last is the longest default of start_deadline
	poolBuckets     = []float64{.01, .1, 1, 10, 60, 300, 900, 3600}
	leftBuckets     = []float64{.1, .3, 1, 2, 3, 5, 10, 20, 30, 60}
)

// NewMetrics makes the metrics of a replica of a version.
func NewMetrics(version string, g Gauges) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), jobs: map[string]time.Time{},
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cronclave_outcomes_total",
			Help: "Ticks and runs by how they ended, each counted once in the cluster, by the replica that reported it first."}, []string{"job", "outcome", "reason"}),
		tries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cronclave_tries_failed_total",
			Help: "Tries of runs that failed, and that another try has followed."}, []string{"job"}),
		runTime: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cronclave_run_seconds_total",
			Help: "Time that runs took, of those that this replica counts in cronclave_outcomes_total."}, []string{"job"}),
		lastOK: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cronclave_last_ok_timestamp_seconds",
			Help: "When a run last ended ok on this replica, or before it started on any."}, []string{"job"}),
		duration: histogram("cronclave_run_duration_seconds", "How long runs took, of those that this replica counts in cronclave_outcomes_total.", durationBuckets),
		delay:    histogram("cronclave_start_delay_seconds", "How long after they were due ticks were started on this replica.", delayBuckets),
		poolWait: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "cronclave_pool_wait_seconds", Buckets: poolBuckets,
			Help: "How long runs on this replica waited for the slot of a pool that they got."}, []string{"pool"}),
		left: histogram("cronclave_lease_renewal_left_seconds", "What was left of a lease when a renewal came through: near zero it was nearly lost.", leftBuckets),
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "cronclave_leases_lost_total", Help: "Leases that this replica lost."}),
	}
	m.registry.MustRegister(m.outcomes, m.tries, m.runTime, m.lastOK, m.duration, m.delay, m.poolWait, m.left, m.lost,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(g.collectors(version)...)
	return m
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// collectors ask for the gauges.
func (g Gauges) collectors(version string) []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		gauge("cronclave_leader", "1 for the replica that leads the cluster's housekeeping, else 0.", func() float64 { return number(g.Leader()) }),
		gauge("cronclave_redis_up", "1 if Redis answers this replica, else 0.", func() float64 { return number(g.RedisUp()) }),
		gauge("cronclave_clock_offset_seconds", "This machine's clock less that of Redis; NaN until that is known.", func() float64 {
			if offset, known := g.ClockOffset(); known {
				return offset.Seconds()
			}
			return math.NaN()
		}),
		gauge("cronclave_runs", "Runs under way on this replica.", func() float64 { return float64(g.Running()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "cronclave_log_lines_dropped_total",
			Help: "Lines that were dropped from the log, since its reader was too slow, or stuck."}, func() float64 { return float64(g.LogDropped()) }),
		byJob{prometheus.NewDesc("cronclave_job_runs", "Runs of a job under way on this replica; jobs without one are left out.", []string{"job"}, nil), g.ByJob},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "cronclave_build_info", Help: "1, with the version as a label.",
			ConstLabels: prometheus.Labels{"version": version}}, func() float64 { return 1 }),
	}
}

// byJob is a gauge of the jobs that have a value at the moment: there are no more of them than runs, however many jobs there are.
type byJob struct {
	desc   *prometheus.Desc
	values func() map[string]int
}

// Describe names it.
func (b byJob) Describe(ch chan<- *prometheus.Desc) { ch <- b.desc }

// Collect sends the values of all jobs.
func (b byJob) Collect(ch chan<- prometheus.Metric) {
	for job, n := range b.values() {
		ch <- prometheus.MustNewConstMetric(b.desc, prometheus.GaugeValue, float64(n), job)
	}
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
	m.know(o.Job)
	m.outcomes.WithLabelValues(o.Job, o.Outcome, o.Reason).Add(float64(max(o.Ticks, 1)))
	if o.Ran {
		took := max(o.Took, 0).Seconds() // the clock may have been set back
		m.runTime.WithLabelValues(o.Job).Add(took)
		m.duration.Observe(took)
	}
	if o.Outcome == "ok" {
		m.succeeded(o.Job, o.Finished)
	}
}

// know is called with mu held, for what [Metrics.Keep] is to forget.
func (m *Metrics) know(job string) {
	if _, known := m.jobs[job]; !known {
		m.jobs[job] = time.Time{}
	}
}

// TryFailed counts a try of a run that another one follows. The run itself has not ended.
func (m *Metrics) TryFailed(job string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.know(job)
	m.tries.WithLabelValues(job).Inc()
}

// Succeeded notes when a run of a job has ended ok, if none is known that did so later. It counts nothing.
func (m *Metrics) Succeeded(job string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.succeeded(job, at)
}

// succeeded is called with mu held.
func (m *Metrics) succeeded(job string, at time.Time) {
	if at.After(m.jobs[job]) {
		m.jobs[job] = at
		m.lastOK.WithLabelValues(job).Set(float64(at.UnixMilli()) / 1000)
	}
}

// Started notes how long after it was due a tick was started.
func (m *Metrics) Started(delay time.Duration) { m.delay.Observe(max(delay, 0).Seconds()) }

// Waited notes how long a run waited for the slot of a pool that it has got.
func (m *Metrics) Waited(pool string, wait time.Duration) {
	m.poolWait.WithLabelValues(pool).Observe(wait.Seconds())
}

// Renewed notes the rest of a lease when it was renewed.
func (m *Metrics) Renewed(left time.Duration) { m.left.Observe(left.Seconds()) }

// Lost counts a lease.
func (m *Metrics) Lost() { m.lost.Inc() }

// Keep drops the counts of jobs that do not exist any more: each label costs memory here and where metrics are kept. A later run of such a job counts
// until Keep is called again.
func (m *Metrics) Keep(known func(job string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for job := range m.jobs {
		if known(job) {
			continue
		}
		of := prometheus.Labels{"job": job}
		m.outcomes.DeletePartialMatch(of)
		m.tries.DeletePartialMatch(of)
		m.runTime.DeletePartialMatch(of)
		m.lastOK.DeletePartialMatch(of)
		delete(m.jobs, job)
	}
}

// Handler answers with all of them.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}
