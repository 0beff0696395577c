package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cronclave/cronclave/scheduler/run"
)

// jobLabel is the label with a job's name. It is not "job", because Prometheus uses that label for the scrape job, and would rename a label of the same name.
const jobLabel = "job_name"

// perJob holds the metrics with the label of a job.
type perJob struct {
	names      []run.Outcome // all possible outcomes
	outcomes   *prometheus.CounterVec
	reasons    *prometheus.CounterVec
	tries      *prometheus.CounterVec
	recoveries *prometheus.CounterVec
	runTime    *prometheus.CounterVec

	lastOK, lastFailure, knownSince *prometheus.GaugeVec
}

// jobTimes are the values of a job's gauges. A zero time means no value.
type jobTimes struct{ ok, failure, known time.Time }

// A Job is a job of the configuration in use.
type Job struct {
	Name string
	// Retries is set if a run of the job may have more than one attempt. Recovers is set if interrupted runs are recovered.
	Retries, Recovers bool
}

func newPerJob(outcomes []run.Outcome) perJob {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{jobLabel}, labels...))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{jobLabel})
	}
	return perJob{names: outcomes,
		outcomes: counter("cronclave_outcomes_total", "Ticks and runs by how they ended, each counted once in the cluster, by the replica that reported it first.", "outcome"),
		reasons: counter("cronclave_outcome_reasons_total", "The same by reason, for those outcomes whose reasons are a few words. A series exists from its first event on.",
			"outcome", "reason"),
		tries: counter("cronclave_tries_failed_total", "Tries of runs that failed, and that another try has followed."),
		recoveries: counter("cronclave_recoveries_total",
			"Runs on this replica that took over a tick from a run that had died, was drained, or had lost its lease."),
		runTime:     counter("cronclave_run_seconds_total", "Time that runs took, of those that this replica counts in cronclave_outcomes_total."),
		lastOK:      gauge("cronclave_last_ok_timestamp_seconds", "When a run last ended ok, as far as this replica knows. The leader knows it of all replicas."),
		lastFailure: gauge("cronclave_last_failure_timestamp_seconds", "The same of runs and ticks that failed, timed out, were lost, abandoned or missed."),
		knownSince:  gauge("cronclave_job_known_since_timestamp_seconds", "Since when this replica, or the history, has known the job."),
	}
}

func (p *perJob) jobCollectors() []prometheus.Collector {
	return []prometheus.Collector{p.outcomes, p.reasons, p.tries, p.recoveries, p.runTime, p.lastOK, p.lastFailure, p.knownSince}
}

// SetJobs sets the jobs and pools of the configuration in use. Counters of new jobs start at zero. Series of removed jobs are deleted, because each one costs
// memory here and in the database of the metrics. If a run of a removed job ends later, the job has series again until the next SetJobs.
func (m *Metrics) SetJobs(jobs []Job, pools []string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stay := make(map[string]bool, len(jobs))
	for _, job := range jobs {
		stay[job.Name] = true
		m.beginSeries(job, now)
	}
	for job := range m.jobs {
		if !stay[job] {
			m.dropSeries(job)
			delete(m.jobs, job)
		}
	}
	m.setPools(pools)
}

// beginSeries creates the series of a job, so that counters exist before the first event. The caller holds mu.
func (m *Metrics) beginSeries(job Job, now time.Time) {
	for _, outcome := range m.names {
		m.outcomes.WithLabelValues(job.Name, string(outcome))
	}
	m.runTime.WithLabelValues(job.Name)
	if job.Retries {
		m.tries.WithLabelValues(job.Name)
	}
	if job.Recovers {
		m.recoveries.WithLabelValues(job.Name)
	}
	if times := m.timesOf(job.Name); times.known.IsZero() {
		m.setKnown(job.Name, times, now)
	}
}

func (p *perJob) dropSeries(job string) {
	of := prometheus.Labels{jobLabel: job}
	for _, vec := range []*prometheus.CounterVec{p.outcomes, p.reasons, p.tries, p.recoveries, p.runTime} {
		vec.DeletePartialMatch(of)
	}
	for _, vec := range []*prometheus.GaugeVec{p.lastOK, p.lastFailure, p.knownSince} {
		vec.DeletePartialMatch(of)
	}
}

// setPools creates the series of new pools and deletes the series of removed ones. The caller holds mu.
func (m *Metrics) setPools(pools []string) {
	stay := map[string]bool{}
	for _, pool := range pools {
		stay[pool] = true
		m.pools[pool] = true
		m.poolWait.WithLabelValues(pool)
		m.waiting.WithLabelValues(pool)
	}
	for pool := range m.pools {
		if !stay[pool] {
			m.poolWait.DeleteLabelValues(pool)
			m.waiting.DeleteLabelValues(pool)
			delete(m.pools, pool)
		}
	}
}

// timesOf returns the times of a job. If a run of a removed job ends, timesOf creates the times again. The next SetJobs deletes them. The caller holds mu.
func (m *Metrics) timesOf(job string) *jobTimes {
	times := m.jobs[job]
	if times == nil {
		times = &jobTimes{}
		m.jobs[job] = times
	}
	return times
}

// Past is what the history contains about a job: the times of the last success, the last failure and the oldest record. A zero time means none.
type Past struct{ OK, Failure, Oldest time.Time }

// Recall sets the gauges of a job from its history. It changes no counter, and ignores jobs that are not configured.
func (m *Metrics) Recall(job string, past Past) {
	m.mu.Lock()
	defer m.mu.Unlock()
	times := m.jobs[job]
	if times == nil {
		return
	}
	m.setLatest(&times.ok, past.OK, m.lastOK.WithLabelValues, job)
	m.setLatest(&times.failure, past.Failure, m.lastFailure.WithLabelValues, job)
	if !past.Oldest.IsZero() && past.Oldest.Before(times.known) {
		m.setKnown(job, times, past.Oldest)
	}
}

// setLatest sets *known and the job's gauge to the time at if that is later, so the order of calls does not matter. The caller holds mu.
func (m *Metrics) setLatest(known *time.Time, at time.Time, series func(...string) prometheus.Gauge, job string) {
	if at.After(*known) {
		*known = at
		series(job).Set(unixSeconds(at))
	}
}

// setKnown sets the time since which a job is known. The caller holds mu.
func (m *Metrics) setKnown(job string, times *jobTimes, at time.Time) {
	times.known = at
	m.knownSince.WithLabelValues(job).Set(unixSeconds(at))
}
