package web

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Gauges are functions that return current values. Each scrape calls them, so they must be safe for concurrent use.
type Gauges struct {
	Leader      func() bool                  // reports whether the replica leads
	RedisUp     func() bool                  // reports whether Redis answers; may block for a while
	ClockOffset func() (time.Duration, bool) // this machine's clock minus the clock of Redis, if known
	Lateness    func() (time.Duration, bool) // time since the oldest undecided tick was due, if known
	Running     func() int                   // number of runs in progress
	ByJob       func() map[string]int        // number of runs in progress per job; jobs without a run are absent
	LogDropped  func() uint64                // number of lines dropped from the log
	Cluster     func() *Cluster              // state that the leader last read; nil on other replicas, and after an error
}

// newCollectors returns the gauges of the replica itself.
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

// Describe sends the description of the metric.
func (b byJob) Describe(ch chan<- *prometheus.Desc) { ch <- b.desc }

// Collect sends the values of all jobs.
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
