package cluster

import (
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// CountStates counts replicas by state, according to their registrations. The result has every state, even with a count of 0.
func CountStates(replicas []journal.Replica, now time.Time) map[ReplicaState]int {
	count := map[ReplicaState]int{ReplicaUp: 0, ReplicaDraining: 0, ReplicaUnable: 0, ReplicaSilent: 0}
	for _, r := range replicas {
		count[stateOf(r, now, time.Time{})]++
	}
	return count
}
