// Package metrics keeps the metrics of a replica for Prometheus. docs/metrics.md describes each of them.
package metrics

import (
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/events"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/run"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are the metrics of a replica. The methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	perJob
	duration prometheus.Histogram
	delay    prometheus.Histogram
	poolWait *prometheus.HistogramVec
	waiting  *prometheus.GaugeVec
	left     prometheus.Histogram
	lost     prometheus.Counter
	outages  prometheus.Counter
	losses   prometheus.Counter
	reloads  reloads

	mu    sync.Mutex // guards jobs and pools, and the creation and deletion of their series
	jobs  map[string]*jobTimes
	pools map[string]bool
}

type reloads struct {
	successful, at prometheus.Gauge
	zoneData       *prometheus.GaugeVec
}

// The buckets are in seconds. To limit the number of series, no histogram has the label of a job: see docs/metrics.md.
var (
	durationBuckets = []float64{.1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600} // the last bucket is the default timeout
	delayBuckets    = []float64{.01, .03, .1, .3, 1, 3, 10, 30, 60, 300, 900, 3600}            // the last bucket is the longest default of start_deadline
	poolBuckets     = []float64{.01, .1, 1, 10, 60, 300, 900, 3600}
	leftBuckets     = []float64{.1, .3, 1, 2, 3, 5, 10, 20, 30, 60}
)

// New returns the metrics of a replica.
func New(version string, g Gauges) *Metrics {
	outcomes := slices.DeleteFunc(run.Outcomes(), func(outcome run.Outcome) bool { return outcome == run.Running })
	m := &Metrics{registry: prometheus.NewRegistry(), perJob: newPerJob(outcomes), jobs: map[string]*jobTimes{}, pools: map[string]bool{},
		duration: newHistogram("cronclave_run_duration_seconds", "How long runs took, of those that this replica counts in cronclave_outcomes_total.", durationBuckets),
		delay:    newHistogram("cronclave_start_delay_seconds", "How long after they were due ticks were started on this replica.", delayBuckets),
		poolWait: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "cronclave_pool_wait_seconds", Buckets: poolBuckets,
			Help: "How long runs on this replica waited for the slot of a pool that they got."}, []string{"pool"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cronclave_pool_waiting_runs",
			Help: "Runs on this replica that wait for a slot of a pool."}, []string{"pool"}),
		left:    newHistogram("cronclave_lease_renewal_left_seconds", "What was left of a lease when a renewal came through: near zero it was nearly lost.", leftBuckets),
		lost:    prometheus.NewCounter(prometheus.CounterOpts{Name: "cronclave_leases_lost_total", Help: "Leases that this replica lost."}),
		outages: prometheus.NewCounter(prometheus.CounterOpts{Name: "cronclave_redis_outages_total", Help: "Outages of Redis of two seconds or more that registrations of this replica met. They are 5 s apart, so shorter outages may be missing."}),
		losses:  prometheus.NewCounter(prometheus.CounterOpts{Name: "cronclave_redis_data_losses_total", Help: "Losses of the data in Redis, as this replica saw them."}),
		reloads: reloads{
			successful: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cronclave_config_last_reload_successful",
				Help: "1 if the configuration in force is the newest one, 0 if a newer one was refused."}),
			at: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cronclave_config_last_reload_success_timestamp_seconds",
				Help: "When the configuration in force was read."}),
			zoneData: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cronclave_zone_data_info",
				Help: "1 for the version of the time zones by which this replica has ticks."}, []string{"version"}),
		},
	}
	m.registry.MustRegister(m.duration, m.delay, m.poolWait, m.waiting, m.left, m.lost, m.outages, m.losses, m.reloads.successful, m.reloads.at, m.reloads.zoneData,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), cluster{g.RedisUp, g.Cluster})
	m.registry.MustRegister(m.perJob.jobCollectors()...)
	m.registry.MustRegister(g.newCollectors(version)...)
	return m
}

func newHistogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// Count counts an outcome, an outage of Redis, or a loss of its data. It ignores all other events.
func (m *Metrics) Count(e events.Event) {
	switch e := e.(type) {
	case events.Outcome:
		m.countRecord(e.Record)
	case events.ProblemEnded:
		switch e.Code {
		case journal.Outage:
			m.outages.Inc()
		case journal.DataLoss:
			m.losses.Inc()
		}
	}
}

// withReason lists the outcomes whose reasons are codes. Reasons of other outcomes are free texts, which would need too many series.
var withReason = []run.Outcome{run.Canceled, run.Skipped, run.Missed}

// countRecord counts the record of the end of a run, of a failed attempt that was retried, or of ticks that did not run. It also updates the times of the
// last success and the last failure of the job.
func (m *Metrics) countRecord(rec journal.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	times := m.timesOf(rec.Job)
	if rec.Retried {
		m.tries.WithLabelValues(rec.Job).Inc()
		return
	}
	n := float64(max(rec.Ticks, 1))
	m.outcomes.WithLabelValues(rec.Job, string(rec.Outcome)).Add(n)
	if rec.Reason != "" && slices.Contains(withReason, rec.Outcome) {
		m.reasons.WithLabelValues(rec.Job, string(rec.Outcome), string(rec.Reason)).Add(n)
	}
	if rec.DurationMS != nil {
		took := (time.Duration(max(*rec.DurationMS, 0)) * time.Millisecond).Seconds() // negative if the clock was set back during the run
		m.runTime.WithLabelValues(rec.Job).Add(took)
		m.duration.Observe(took)
	}
	switch {
	case rec.Outcome == journal.OutcomeOK:
		m.setLatest(&times.ok, rec.Finished, m.lastOK.WithLabelValues, rec.Job)
	case rec.Failed():
		m.setLatest(&times.failure, rec.Finished, m.lastFailure.WithLabelValues, rec.Job)
	}
}

// Recovering counts a run that repeats the tick of an orphaned run.
func (m *Metrics) Recovering(job string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timesOf(job)
	m.recoveries.WithLabelValues(job).Inc()
}

// Started records the delay of a start: the time from the due time of the tick to the start.
func (m *Metrics) Started(delay time.Duration) { m.delay.Observe(max(delay, 0).Seconds()) }

// Waited records the time that a run waited for a slot of a pool. It is called when the run has the slot.
func (m *Metrics) Waited(pool string, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pools[pool] = true
	m.poolWait.WithLabelValues(pool).Observe(wait.Seconds())
}

// Waiting counts a run as waiting for a slot of a pool until the returned function is called. If the pool has already been removed, the next SetJobs deletes
// the series.
func (m *Metrics) Waiting(pool string) (over func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pools[pool] = true
	series := m.waiting.WithLabelValues(pool)
	series.Inc()
	return series.Dec
}

// Renewed records the time that a lease still had left when it was renewed.
func (m *Metrics) Renewed(left time.Duration) { m.left.Observe(left.Seconds()) }

// Lost counts a lost lease.
func (m *Metrics) Lost() { m.lost.Inc() }

// Configured records the time from which the configuration has been in use, and the version of its time zone data.
func (m *Metrics) Configured(at time.Time, zoneData string) {
	m.reloads.zoneData.Reset()
	m.reloads.zoneData.WithLabelValues(zoneData).Set(1)
	m.reloads.successful.Set(1)
	m.reloads.at.Set(unixSeconds(at))
}

// Refused records that a newer configuration was refused.
func (m *Metrics) Refused() { m.reloads.successful.Set(0) }

// unixSeconds returns a time in seconds since 1970, as Prometheus expects it.
func unixSeconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

// Handler returns the handler of the route /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Gauges are functions that return current values. Each scrape calls them, so they must be safe for concurrent use.
type Gauges struct {
	Leader      func() bool                  // reports whether the replica leads
	RedisUp     func() bool                  // reports whether Redis answers; may block for a while
	ClockOffset func() (time.Duration, bool) // this machine's clock minus the clock of Redis, if known
	Lateness    func() (time.Duration, bool) // time since the oldest undecided tick was due, if known
	Running     func() int                   // number of runs in progress
	ByJob       func() map[string]int        // number of runs in progress per job; jobs without a run are absent
	LogDropped  func() uint64                // number of lines dropped from the log
	SpansLost   func() uint64                // number of trace spans that were dropped
	Cluster     func() *Cluster              // state that the leader last read; nil on other replicas, and after an error
}

func (g Gauges) newCollectors(version string) []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	ifKnown := func(value func() (time.Duration, bool)) func() float64 {
		return func() float64 {
			if d, known := value(); known {
				return d.Seconds()
			}
			return math.NaN()
		}
	}
	return []prometheus.Collector{
		gauge("cronclave_leader", "1 for the replica that leads the cluster's housekeeping, else 0.", func() float64 { return boolValue(g.Leader()) }),
		gauge("cronclave_clock_offset_seconds", "This machine's clock less that of Redis; NaN until that is known.", ifKnown(g.ClockOffset)),
		gauge("cronclave_lateness_seconds", "For how long the oldest tick has been due that has no outcome yet, as far as this replica knows; NaN while it does not schedule.",
			ifKnown(g.Lateness)),
		gauge("cronclave_runs", "Runs under way on this replica.", func() float64 { return float64(g.Running()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "cronclave_log_lines_dropped_total",
			Help: "Lines that were dropped from the log, since its reader was too slow, or stuck."}, func() float64 { return float64(g.LogDropped()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "cronclave_trace_spans_dropped_total",
			Help: "Trace spans that were dropped, since the collector did not take them."}, func() float64 { return float64(g.SpansLost()) }),
		byJob{prometheus.NewDesc("cronclave_job_runs", "Runs of a job under way on this replica; jobs without one are left out.", []string{jobLabel}, nil), g.ByJob},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "cronclave_build_info", Help: "1, with the version as a label.",
			ConstLabels: prometheus.Labels{"version": version}}, func() float64 { return 1 }),
	}
}

// byJob is a gauge with the label of a job. Only jobs with a run have a series, so there are no more series than runs.
type byJob struct {
	desc   *prometheus.Desc
	values func() map[string]int
}

func (b byJob) Describe(ch chan<- *prometheus.Desc) { ch <- b.desc }

func (b byJob) Collect(ch chan<- prometheus.Metric) {
	for job, n := range b.values() {
		ch <- prometheus.MustNewConstMetric(b.desc, prometheus.GaugeValue, float64(n), job)
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Cluster is the state of the whole cluster, as the leader last read it. It is immutable.
type Cluster struct {
	Replicas       map[string]int       // number of replicas in each state, including states with none
	Expected       int                  // number of replicas that should be up
	Lost           map[string]time.Time // time at which each lost replica was last seen, by name
	Configurations int                  // number of different configurations in the cluster
	Paused         []string             // names of the paused jobs
	Late           []LateJob            // jobs that are slow, stale or overdue
	Ticks          map[string]NextTick  // next tick by job; jobs without a next tick are absent
	Pools          map[string]PoolUse
	Targets        map[string]journal.TargetState // targets of notifications
}

// LateJob is a job with a condition: slow, stale or overdue.
type LateJob struct{ Job, Condition string }

// NextTick is the next due time of a job. Period is the longest gap between the job's coming ticks.
type NextTick struct {
	At     time.Time
	Period time.Duration
}

// PoolUse is the total number of slots of a pool, and the number of held ones.
type PoolUse struct{ Slots, Held int }

// cluster is the collector for the state of Redis and of the cluster. During a scrape, only redisUp calls Redis. The state of the cluster is the last reading
// of the leader, so a scrape does not wait for many calls to a Redis that hangs.
type cluster struct {
	redisUp func() bool
	known   func() *Cluster
}

func clusterDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("cronclave_"+name, help, labels, nil)
}

var (
	descRedisUp  = clusterDesc("redis_up", "1 if Redis answers this replica, else 0.")
	descReplicas = clusterDesc("replicas", "Replicas by what they do. Reported by the leader.", "state")
	descExpected = clusterDesc("replicas_expected",
		"Replicas that should be up: [cluster].replicas, or else those that are registered and those that were lost within the last day. Reported by the leader.")
	descLost = clusterDesc("replica_lost_timestamp_seconds",
		"When a replica was last seen whose registration has expired within the last day, and that none of its name has followed. Reported by the leader.", "name")
	descConfigurations = clusterDesc("configurations", "Different configurations that replicas have. Reported by the leader.")
	descPaused         = clusterDesc("job_paused", "1 for a job that is paused; other jobs are left out. Reported by the leader.", jobLabel)
	descLate           = clusterDesc("job_late", "1 for a job that is slow, stale or overdue; other jobs are left out. Reported by the leader.", jobLabel, "condition")
	descNext           = clusterDesc("job_next_tick_timestamp_seconds", "When a job is next due by its schedule, also while it is paused. Reported by the leader.", jobLabel)
	descPeriod         = clusterDesc("job_period_seconds", "The longest time between two of the coming ticks of a job. Reported by the leader.", jobLabel)
	descSlots          = clusterDesc("pool_slots", "Slots of a pool. Reported by the leader.", "pool")
	descNotified       = clusterDesc("notifications", "Notifications of a target since the first one, by their result: sent, refused, dropped, or repeated after an unknown answer. Reported by the leader.", "target", "result")
	descNotifyWaiting  = clusterDesc("notifications_waiting", "Notifications that wait for a target. Reported by the leader.", "target")
	descNotifyOldest   = clusterDesc("notifications_oldest_timestamp_seconds", "When the oldest notification was queued that waits for a target; left out if none waits. Reported by the leader.", "target")
	descHeld           = clusterDesc("pool_held_slots", "Slots of a pool that are held. Reported by the leader.", "pool")
)

func (c cluster) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descRedisUp, descReplicas, descExpected, descLost, descConfigurations, descPaused, descLate, descNext, descPeriod, descSlots, descHeld, descNotified, descNotifyWaiting, descNotifyOldest} {
		ch <- d
	}
}

// Collect sends all values. While Redis does not answer, it sends only redis_up, because the state of the cluster may be out of date.
func (c cluster) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	up := c.redisUp()
	send(descRedisUp, boolValue(up))
	known := c.known()
	if !up || known == nil {
		return
	}
	known.sendMetrics(send)
}

func (k *Cluster) sendMetrics(send func(d *prometheus.Desc, value float64, labels ...string)) {
	for state, n := range k.Replicas {
		send(descReplicas, float64(n), state)
	}
	send(descExpected, float64(k.Expected))
	for name, seen := range k.Lost {
		send(descLost, unixSeconds(seen), name)
	}
	send(descConfigurations, float64(k.Configurations))
	for _, job := range k.Paused {
		send(descPaused, 1, job)
	}
	for _, late := range k.Late {
		send(descLate, 1, late.Job, late.Condition)
	}
	for job, next := range k.Ticks {
		send(descNext, unixSeconds(next.At), job)
		if next.Period > 0 {
			send(descPeriod, next.Period.Seconds(), job)
		}
	}
	for pool, use := range k.Pools {
		send(descSlots, float64(use.Slots), pool)
		send(descHeld, float64(use.Held), pool)
	}
	for name, t := range k.Targets {
		for result, n := range map[string]int64{"sent": t.Sent, "refused": t.Refused, "dropped": t.Dropped, "repeated": t.Repeated} {
			send(descNotified, float64(n), name, result)
		}
		send(descNotifyWaiting, float64(t.Waiting), name)
		if !t.Oldest.IsZero() {
			send(descNotifyOldest, unixSeconds(t.Oldest), name)
		}
	}
}
