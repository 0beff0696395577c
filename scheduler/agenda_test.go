package scheduler

import (
	"fmt"
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

// TestOpenedInPieces: of one instant some ticks are opened at a time; of several all, since a job may have one of each.
func TestOpenedInPieces(t *testing.T) {
	for _, tc := range []struct {
		after time.Duration
		open  []int // after each call
	}{
		{0, []int{openAtOnce, 2 * openAtOnce, 2*openAtOnce + 1, 2*openAtOnce + 1}},
		{time.Second, []int{2 * (2*openAtOnce + 1), 2 * (2*openAtOnce + 1)}},
	} {
		a := agenda{turn: func(*task, time.Time) time.Duration { return 0 }}
		start := time.Unix(946684800, 0).UTC()
		var tasks []*task
		for range 2*openAtOnce + 1 {
			j, err := newTask(idle("j", "* * * * * *"))
			if err != nil {
				t.Fatal(err)
			}
			a.timeline.add(j.spec, j, start.Add(-time.Second))
			tasks = append(tasks, j)
		}
		now := start.Add(tc.after)
		for i, want := range tc.open {
			a.collect(now)
			open := 0
			for _, j := range tasks {
				open += len(j.open)
			}
			if last := i == len(tc.open)-1 || tc.open[i] == tc.open[i+1]; open != want || a.more() == last {
				t.Errorf("%v late, call %d: %d ticks are open, more: %v; want %d", tc.after, i, open, a.more(), want)
			}
		}
	}
}

// TestClockSetBackWhileTicksAreOpened: what came due by then is open afterwards.
func TestClockSetBackWhileTicksAreOpened(t *testing.T) {
	var jobs []Job
	for i := range 2*openAtOnce + 1 {
		jobs = append(jobs, idle(fmt.Sprint("j", i), "0 0 3 * * *"))
	}
	s, err := New(Config{Jobs: jobs, Claimer: &oracle{}})
	if err != nil {
		t.Fatal(err)
	}
	due := time.Date(2000, 1, 1, 3, 0, 0, 0, time.UTC)
	for _, j := range s.tasks {
		s.agenda.timeline.add(j.spec, j, due.Add(-time.Hour))
	}
	late := due.Add(10 * time.Minute)
	s.noticeStep(late)
	s.agenda.collect(late)
	s.noticeStep(late.Add(-5 * time.Minute))
	for _, j := range s.tasks {
		if len(j.open) != 1 {
			t.Fatalf("%s has %d open ticks", j.Name, len(j.open))
		}
	}
}

// TestOldestOfABacklogMayWin: of the ticks that wait as many of the oldest as the job may run here may be granted, and one that may lets
// those before it go first.
func TestOldestOfABacklogMayWin(t *testing.T) {
	start := time.Unix(946684800, 0).UTC()
	for places := 1; places <= 3; places++ {
		job := idle("j", "* * * * * *")
		job.Parallel, job.PerReplica, job.StartDeadline = 3, places, time.Hour
		j, err := newTask(job)
		if err != nil {
			t.Fatal(err)
		}
		a := agenda{turn: func(*task, time.Time) time.Duration { return 0 }}
		for n := range 5 {
			at := start.Add(time.Duration(n) * time.Second)
			a.open(j, instants{at: at, previous: at.Add(-time.Second), next: at.Add(time.Second)}, at).waited = true
		}
		for n, k := range j.open {
			if got := k.mayWin(); got != (n < places) {
				t.Errorf("%d places: tick %d may win: %v", places, n, got)
			}
		}
		later := start.Add(time.Minute)
		a.ask(j.open[0], later, start)
		for n, k := range j.open {
			if until, waits := a.behind(k); waits != (n > 0) || waits && !until.Equal(later) {
				t.Errorf("%d places: tick %d waits for the oldest: %v, until %v", places, n, waits, until)
			}
		}
	}
}
