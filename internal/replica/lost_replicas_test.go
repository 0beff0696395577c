package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// TestReplicaIsLostWhenItStaysAway: after an outage of Redis no entry is there, and the replicas come back one after the other.
func TestReplicaIsLostWhenItStaysAway(t *testing.T) {
	var w lostWatch
	begin := time.Now()
	for i, step := range []struct {
		after         time.Duration
		missing, lost []string
	}{
		{0, []string{"a-12345678", "b-12345678"}, nil},
		{cluster.RegisterEvery, []string{"a-12345678"}, nil},
		{2 * cluster.RegisterEvery, []string{"a-12345678", "b-12345678"}, []string{"a-12345678"}}, // b stood still again
		{3 * cluster.RegisterEvery, []string{"b-12345678"}, nil},
		{4 * cluster.RegisterEvery, []string{"b-12345678"}, []string{"b-12345678"}},
	} {
		var missing []journal.LostReplica
		for _, id := range step.missing {
			missing = append(missing, journal.LostReplica{ID: id})
		}
		var lost []string
		for _, l := range w.confirmedLost(missing, begin.Add(step.after)) {
			lost = append(lost, l.ID)
		}
		if !slices.Equal(lost, step.lost) {
			t.Errorf("look %d: lost %v, want %v", i, lost, step.lost)
		}
	}
	if got := journal.NameOf("eu-west-1-abcdefgh"); got != "eu-west-1" {
		t.Errorf("the name is %q", got)
	}
}
