package httpapi

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Gauges are asked for when somebody wants to know, by several goroutines at once.
type Gauges struct {
	Leader      func() bool                  // whether the replica leads
	RedisUp     func() bool                  // whether Redis answers, which may take a while to find out
	ClockOffset func() (time.Duration, bool) // this machine's clock less that of Redis, if that is known
	Lateness    func() (time.Duration, bool) // for how long the oldest tick without an outcome has been due, if that is known
	Running     func() int                   // runs under way
	ByJob       func() map[string]int        // of which jobs they are
	LogDropped  func() uint64                // lines that were dropped from the log
	Cluster     func() *Cluster              // the state that the leader has read last; nil on other replicas, and after an error
}

// collectors ask for the gauges of the replica itself.
func (g Gauges) collectors(version string) []prometheus.Collector {
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
		gauge("cronclave_leader", "1 for the replica that leads the cluster's housekeeping, else 0.", func() float64 { return number(g.Leader()) }),
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
