package operator

import (
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// ComingTicks returns at most n ticks of a job after an instant, by its schedule. There are none of a job that is not enabled or runs after others, or whose
// schedule this version cannot read.
func ComingTicks(info journal.JobInfo, after time.Time, n int) (ticks []time.Time) {
	if !info.Enabled || len(info.After) > 0 {
		return nil
	}
	spec, zone, err := scheduleOf(info)
	if err != nil {
		return nil
	}
	for _, t := range Upcoming([]Scheduled{{info.Name, spec, zone}}, Window{From: after, Limit: n}) {
		ticks = append(ticks, t.At)
	}
	return ticks
}

// CountStates counts replicas by what they do, as their last signs of life say. All states are in the result.
func CountStates(replicas []journal.Replica, now time.Time) map[ReplicaState]int {
	count := map[ReplicaState]int{ReplicaUp: 0, ReplicaDraining: 0, ReplicaUnable: 0, ReplicaSilent: 0}
	for _, r := range replicas {
		count[stateOf(r, now)]++
	}
	return count
}
