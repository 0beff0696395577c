package agenda

import (
	"testing"
	"time"
)

// everySecond is a job with a tick each second, and defaults for the rest.
func everySecond(t *testing.T) *Job[any] {
	t.Helper()
	return &Job[any]{Rules: &Rules{Name: "j", Parallel: 1, PerTick: 1, PerReplica: 1, Overlap: Skip, CatchUp: CatchUpNone}, Spec: parseSchedule(t, "* * * * * *")}
}

// A tick that waited for its turn for long, and has just been claimed, does not count as unanswered for long.
// Promise: P5
func TestWokenTickIsNotSilent(t *testing.T) {
	j := everySecond(t)
	j.StartDeadline = time.Hour
	a := Agenda[any]{Turn: func(*Job[any], time.Time) time.Duration { return 0 }}
	start := time.Unix(946684800, 0).UTC()
	k := a.Open(j, Instants{At: start, Previous: start.Add(-time.Second), Next: start.Add(time.Second)}, start)
	k.waitInLine()
	a.Park(k, start)
	woken := start.Add(10 * time.Second)
	if a.isSilent(k, woken) {
		t.Error("silent while nobody asks for it")
	}
	a.Wake(j, 1, woken)
	for _, tc := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {unanswered - 1, false}, {unanswered, true}} {
		if got := a.isSilent(k, woken.Add(tc.after)); got != tc.want {
			t.Errorf("silent %v after it was asked for: %v", tc.after, got)
		}
	}
	if first, _ := a.asks.First(); !first.Equal(k.Due) {
		t.Errorf("asked for in the turn of %v", first) // before younger ticks
	}
}

// Ticks are skipped behind one that waits as long as the ledger has room for them; then they wait too.
// Promise: P6
func TestLedgerHoldsWhatIsSkippedBehindABacklog(t *testing.T) {
	const room = 1000 // see MOST in internal/lease/redis/lua/state.lua
	j := everySecond(t)
	j.StartDeadline = time.Hour
	a := Agenda[any]{Turn: func(*Job[any], time.Time) time.Duration { return 0 }}
	start := time.Unix(946684800, 0).UTC()
	skipped := 0
	for n := range 2 * room {
		at := start.Add(time.Duration(n) * time.Second)
		k := a.Open(j, Instants{At: at, Previous: at.Add(-time.Second), Next: at.Add(time.Second)}, at)
		switch {
		case n == 0:
			k.waitInLine()
			a.Park(k, at)
		case !k.Waits():
			skipped++
			a.Close(k)
		}
	}
	if skipped >= room || skipped < room-10 {
		t.Errorf("%d of %d ticks were skipped behind the one that waits", skipped, 2*room-1)
	}
}

// TestOpenedInPieces: of one instant some ticks are opened at a time; of several all, since a job may have one of each.
// Promise: P5
func TestOpenedInPieces(t *testing.T) {
	for _, tc := range []struct {
		after time.Duration
		open  []int // after each call
	}{
		{0, []int{openAtOnce, 2 * openAtOnce, 2*openAtOnce + 1, 2*openAtOnce + 1}},
		{time.Second, []int{2 * (2*openAtOnce + 1), 2 * (2*openAtOnce + 1)}},
	} {
		a := Agenda[any]{Turn: func(*Job[any], time.Time) time.Duration { return 0 }}
		start := time.Unix(946684800, 0).UTC()
		var tasks []*Job[any]
		for range 2*openAtOnce + 1 {
			j := everySecond(t)
			a.Enter(j, start.Add(-time.Second))
			tasks = append(tasks, j)
		}
		now := start.Add(tc.after)
		for i, want := range tc.open {
			a.Collect(now)
			open := 0
			for _, j := range tasks {
				open += len(j.Open)
			}
			if last := i == len(tc.open)-1 || tc.open[i] == tc.open[i+1]; open != want || a.More() == last {
				t.Errorf("%v late, call %d: %d ticks are open, more: %v; want %d", tc.after, i, open, a.More(), want)
			}
		}
	}
}

// The oldest waiting ticks may be granted, as many as the job may run here, and a tick that may be granted lets older ones go first.
// Promise: P5
func TestOldestOfABacklogMayWin(t *testing.T) {
	start := time.Unix(946684800, 0).UTC()
	for places := 1; places <= 3; places++ {
		j := everySecond(t)
		j.Parallel, j.PerReplica, j.StartDeadline = 3, places, time.Hour
		a := Agenda[any]{Turn: func(*Job[any], time.Time) time.Duration { return 0 }}
		for n := range 5 {
			at := start.Add(time.Duration(n) * time.Second)
			a.Open(j, Instants{At: at, Previous: at.Add(-time.Second), Next: at.Add(time.Second)}, at).waitInLine()
		}
		for n, k := range j.Open {
			if got := k.MayWin(); got != (n < places) {
				t.Errorf("%d places: tick %d may win: %v", places, n, got)
			}
		}
		later := start.Add(time.Minute)
		a.Ask(j.Open[0], later, start)
		for n, k := range j.Open {
			if until, waits := a.Behind(k); waits != (n > 0) || waits && !until.Equal(later) {
				t.Errorf("%d places: tick %d waits for the oldest: %v, until %v", places, n, waits, until)
			}
		}
	}
}
