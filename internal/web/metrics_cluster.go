package web

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Cluster is the state of the whole cluster, as the leader last read it. It is immutable.
type Cluster struct {
	Replicas       map[string]int       // number of replicas in each state, including states with none
	Expected       int                  // number of replicas that should be up
	Lost           map[string]time.Time // time at which each lost replica was last seen, by name
	Configurations int                  // number of different configurations in the cluster
	Paused         []string             // names of the paused jobs
	Ticks          map[string]NextTick  // next tick by job; jobs without a next tick are absent
	Pools          map[string]PoolUse
}

// NextTick is the next due time of a job. Period is the longest gap between the job's coming ticks.
type NextTick struct {
	At     time.Time
	Period time.Duration
}

// PoolUse is the total number of slots of a pool, and the number of held ones.
type PoolUse struct{ Slots, Held int }

// cluster is the collector for the state of Redis and of the cluster. A scrape sends only the request of redisUp, and otherwise reports the state that was
// read last, so it does not wait for a Redis that hangs.
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
	descNext           = clusterDesc("job_next_tick_timestamp_seconds", "When a job is next due by its schedule, also while it is paused. Reported by the leader.", jobLabel)
	descPeriod         = clusterDesc("job_period_seconds", "The longest time between two of the coming ticks of a job. Reported by the leader.", jobLabel)
	descSlots          = clusterDesc("pool_slots", "Slots of a pool. Reported by the leader.", "pool")
	descHeld           = clusterDesc("pool_held_slots", "Slots of a pool that are held. Reported by the leader.", "pool")
)

// Describe sends the descriptions of the metrics.
func (c cluster) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descRedisUp, descReplicas, descExpected, descLost, descConfigurations, descPaused, descNext, descPeriod, descSlots, descHeld} {
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
}
