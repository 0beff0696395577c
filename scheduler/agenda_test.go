package scheduler

import (
	"testing"
	"time"
)

// TestLedgerHoldsWhatIsSkippedBehindABacklog: ticks are skipped behind one that waits as long as the ledger has room for
// them; then they wait too.
func TestLedgerHoldsWhatIsSkippedBehindABacklog(t *testing.T) {
	const room = 1000 // see MOST in locking/lua/state.lua
	job := idle("j", "* * * * * *")
	job.StartDeadline = time.Hour
	j, err := newTask(job)
	if err != nil {
		t.Fatal(err)
	}
	a := agenda{turn: func(*task, time.Time) time.Duration { return 0 }}
	start := time.Unix(946684800, 0).UTC()
	skipped := 0
	for n := range 2 * room {
		at := start.Add(time.Duration(n) * time.Second)
		k := a.open(j, at, at.Add(-time.Second), at)
		switch {
		case n == 0:
			k.waited = true
			a.park(k, at)
		case !k.waited:
			skipped++
			a.close(k)
		}
	}
	if skipped >= room || skipped < room-10 {
		t.Errorf("%d of %d ticks were skipped behind the one that waits", skipped, 2*room-1)
	}
}
