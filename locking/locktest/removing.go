package locktest

import (
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

func removing() []theorem {
	return []theorem{
		{"RemovedLockLeavesNothingAndItsTicksStayDecided", removed, memory}, // Promise: P1
		{"LockThatWasUsedSinceIsNotRemoved", usedSince, memory},
		{"HeldLockIsNotRemoved", heldIsKept, memory},           // Promise: P3
		{"LockWithAnOrphanIsNotRemoved", orphanIsKept, memory}, // Promise: P6
		{"PausedLockIsNotRemoved", pauseIsKept, memory},        // Promise: P6
	}
}

// removes asks for the removal of the lock, and fails the test unless it does as wanted.
func removes(b *bench, unusedSince time.Time, want bool) {
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
	runs(b, b.a, 1)
	runs(b, b.a, 4) // out of turn: the ledger has an entry
	removes(b, b.now(), true)
	if n := b.rdb.Exists(b.ctx, b.keys()...).Val(); n != 0 {
		b.Errorf("%d keys are left", n)
	}
	newcomer := b.client("newcomer")
	for _, c := range []*engine.Client{newcomer, b.b} { // the client that has removed it holds nothing against the server
		b.gets(c, engine.Request{Tick: b.tick(1)}, engine.Decided)
		b.gets(c, engine.Request{Tick: b.tick(2)}, engine.Decided)
	}
	b.gets(b.a, engine.Request{Tick: b.tick(4)}, engine.Closed) // a client that has not still knows the lock
}

func usedSince(b *bench) {
	b.known()
	before := b.now()
	removes(b, before.Add(-time.Minute), true)
	b.known()
	runs(b, b.a, 1)
	removes(b, before, false)
	removes(b, b.now(), true)
}

func heldIsKept(b *bench) {
	b.known()
	l := b.wins(b.a, engine.Request{Tick: b.tick(1), Trigger: "schedule"})
	removes(b, b.now(), false)
	b.release(l)
	removes(b, b.now(), true)
}

func orphanIsKept(b *bench) {
	b.known()
	died(b, "dead", 1)
	removes(b, b.now(), false)
	if s := b.state(); len(s.Orphans) != 1 {
		b.Fatalf("orphans: %+v", s.Orphans)
	}
	if err := b.b.DeleteOrphans(b.ctx, lock, "dead"); err != nil {
		b.Fatal(err)
	}
	removes(b, b.now(), true)
}

// pauseIsKept until it is over, also where only the client that removes the lock knows of it.
func pauseIsKept(b *bench) {
	b.known()
	pause(b, b.a, engine.PauseRequest{})
	removes(b, b.now(), false)
	pause(b, b.a, engine.PauseRequest{For: time.Hour})
	removes(b, b.now(), false)
	b.forget()
	removes(b, b.now(), false)
	if s := b.state(); !s.Pause.On(s.Now) {
		b.Errorf("the lock tells %+v", s.Pause)
	}
	pause(b, b.a, engine.PauseRequest{End: true})
	removes(b, b.now(), true)
}
