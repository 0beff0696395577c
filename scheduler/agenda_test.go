package scheduler

import (
	"testing"
	"time"
)

// TestWokenTickIsNotSilent: what waited for its turn for long, and has just been asked for, was not left without an answer for long.
func TestWokenTickIsNotSilent(t *testing.T) {
	j, err := newTask(idle("j", "* * * * * *"))
	if err != nil {
		t.Fatal(err)
	}
	j.StartDeadline = time.Hour
	a := agenda{turn: func(*task, time.Time) time.Duration { return 0 }}
	start := time.Unix(946684800, 0).UTC()
	k := a.open(j, instants{at: start, previous: start.Add(-time.Second), next: start.Add(time.Second)}, start)
	k.waited = true
	a.park(k, start)
	woken := start.Add(10 * time.Second)
	if a.silent(k, woken) {
		t.Error("silent while nobody asks for it")
	}
	a.wake(j, 1, woken)
	for _, tc := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {unanswered - 1, false}, {unanswered, true}} {
		if got := a.silent(k, woken.Add(tc.after)); got != tc.want {
			t.Errorf("silent %v after it was asked for: %v", tc.after, got)
		}
	}
	if first, _ := a.asks.first(); !first.Equal(k.due) {
		t.Errorf("asked for in the turn of %v", first) // before what is younger
	}
}

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
		k := a.open(j, instants{at: at, previous: at.Add(-time.Second), next: at.Add(time.Second)}, at)
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
