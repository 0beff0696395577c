package replica

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// Each problem has the time of the registration that first had it, until one does not have it any more.
func TestProblemsKeepTheirBeginning(t *testing.T) {
	t.Parallel()
	var w problemWatch
	begin := time.Now().UTC()
	twin := []journal.Replica{{ID: "a-1", Name: "a", ConfigDigest: "1", Seen: begin}, {ID: "a-2", Name: "a", ConfigDigest: "2", Seen: begin}}
	for i, step := range []struct {
		entry journal.Replica
		met   []journal.Replica // after that
		want  map[string]int    // the step in which each began
	}{
		{journal.Replica{}, twin, nil},
		{journal.Replica{Refused: "a fault", ClockOffsetMS: 90_000}, twin, map[string]int{cluster.CodeConfigRefused: 1, cluster.CodeClockOff: 1, cluster.CodeConfigDiffers: 1, cluster.CodeSameName: 1}},
		{journal.Replica{Refused: "another", Unable: "no memory"}, twin[:1], map[string]int{cluster.CodeConfigRefused: 1, cluster.CodeCannotStart: 2, cluster.CodeConfigDiffers: 1, cluster.CodeSameName: 1}},
		{journal.Replica{ClockOffsetMS: 90_000, Heartbeat: "no answer"}, nil, map[string]int{cluster.CodeClockOff: 3, cluster.CodeHeartbeat: 3}},
		{journal.Replica{}, nil, nil},
	} {
		step.entry.Seen = begin.Add(time.Duration(i) * cluster.RegisterEvery)
		want := map[string]time.Time{}
		for code, n := range step.want {
			want[code] = begin.Add(time.Duration(n) * cluster.RegisterEvery)
		}
		if got := w.addSince(step.entry).Since; !maps.Equal(got, want) {
			t.Errorf("step %d: %v, want %v", i, got, want)
		}
		w.checkPeers(step.met, twin[0])
	}
}

// TestTooFewReplicas: a replica notes that fewer replicas than expected are up. One that drains or is silent is not up.
func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	now := time.Now()
	self := journal.Replica{ID: "a-1", Name: "a", Seen: now, Expected: 2}
	for what, tc := range map[string]struct {
		other journal.Replica
		few   bool
	}{
		"another is up":        {journal.Replica{ID: "b-1", Name: "b", Seen: now}, false},
		"another drains":       {journal.Replica{ID: "b-1", Name: "b", Seen: now, Draining: true}, true},
		"another is silent":    {journal.Replica{ID: "b-1", Name: "b", Seen: now.Add(-cluster.RegisterEvery - cluster.RegistrationDelay)}, true},
		"another expects more": {journal.Replica{ID: "b-1", Name: "b", Seen: now, Expected: 3}, true},
	} {
		var w problemWatch
		if w.checkPeers([]journal.Replica{self, tc.other}, self); slices.Contains(w.peers, cluster.CodeTooFew) != tc.few {
			t.Errorf("%s: %q", what, w.peers)
		}
	}
	self.Expected = 0
	var w problemWatch
	if w.checkPeers([]journal.Replica{self}, self); len(w.peers) > 0 {
		t.Errorf("without a number: %q", w.peers)
	}
}

// Only a replica that is up and stays so has the name of another one; a status warns of no other.
func TestSameNameIsThatOfAReplicaThatStays(t *testing.T) {
	t.Parallel()
	now := time.Now()
	self := journal.Replica{ID: "a-1", Name: "a", Seen: now}
	for what, other := range map[string]journal.Replica{
		"it drains":      {ID: "a-2", Name: "a", Seen: now, Draining: true},
		"it has crashed": {ID: "a-2", Name: "a", Seen: now.Add(-cluster.RegisterEvery - cluster.RegistrationDelay)},
		"another name":   {ID: "b-1", Name: "b", Seen: now},
	} {
		var w problemWatch
		if w.checkPeers([]journal.Replica{self, other}, self); len(w.peers) > 0 {
			t.Errorf("%s: %q", what, w.peers)
		}
	}
}
