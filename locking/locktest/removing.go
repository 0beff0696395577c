package locktest

import (
	"time"

	"github.com/cronclave/cronclave/locking"
)

func removing() []theorem {
	return []theorem{
		{"RemovedLockLeavesNothingAndItsTicksStayDecided", removed, memory},
		{"LockThatWasUsedSinceIsNotRemoved", usedSince, memory},
		{"HeldLockIsNotRemoved", heldIsKept, memory},
		{"LockWithAnOrphanIsNotRemoved", orphanIsKept, memory},
		{"PausedLockIsNotRemoved", pauseIsKept, memory},
	}
}

// removes asks for the removal of the lock, and fails the test unless it does as wanted.
func (b *bench) removes(unusedSince time.Time, want bool) {
	b.Helper()
	got, err := b.b.Remove(b.ctx, []string{lock, "never"}, unusedSince)
	if err != nil || got[0] != want || !got[1] {
		b.Fatalf("removed: %v, %v; want %v", got, err, want)
	}
	if n := b.rdb.Exists(b.ctx, b.keys()[0]).Val(); n == 1 == want {
		b.Errorf("%d keys are left", n)
	}
}

func removed(b *bench) {
	b.known()
	b.runs(b.a, 1)
	b.runs(b.a, 4) // out of turn: the ledger has an entry
	b.removes(b.now(), true)
	if n := b.rdb.Exists(b.ctx, b.keys()...).Val(); n != 0 {
		b.Errorf("%d keys are left", n)
	}
	newcomer := b.client("newcomer")
	for _, c := range []*locking.Client{newcomer, b.b} { // who has removed it holds nothing against the server
		b.gets(c, locking.Request{Tick: b.tick(1)}, locking.Decided)
		b.gets(c, locking.Request{Tick: b.tick(2)}, locking.Decided)
	}
	b.gets(b.a, locking.Request{Tick: b.tick(4)}, locking.Closed) // who has not is a witness
}

func usedSince(b *bench) {
	b.known()
	before := b.now()
	b.removes(before.Add(-time.Minute), true)
	b.known()
	b.runs(b.a, 1)
	b.removes(before, false)
	b.removes(b.now(), true)
}

func heldIsKept(b *bench) {
	b.known()
	l := b.wins(b.a, locking.Request{Tick: b.tick(1), Trigger: "schedule"})
	b.removes(b.now(), false)
	b.release(l)
	b.removes(b.now(), true)
}

func orphanIsKept(b *bench) {
	b.known()
	b.died("dead", 1)
	b.removes(b.now(), false)
	if s := b.state(); len(s.Orphans) != 1 {
		b.Fatalf("orphans: %+v", s.Orphans)
	}
	if err := b.b.Bury(b.ctx, lock, "dead"); err != nil {
		b.Fatal(err)
	}
	b.removes(b.now(), true)
}

// pauseIsKept until it is over, also where only who removes the lock knows of it.
func pauseIsKept(b *bench) {
	b.known()
	b.pause(b.a, locking.PauseRequest{})
	b.removes(b.now(), false)
	b.pause(b.a, locking.PauseRequest{For: time.Hour})
	b.removes(b.now(), false)
	b.forget()
	b.removes(b.now(), false)
	if s := b.state(); !s.Pause.On(s.Now) {
		b.Errorf("the lock tells %+v", s.Pause)
	}
	b.pause(b.a, locking.PauseRequest{End: true})
	b.removes(b.now(), true)
}
