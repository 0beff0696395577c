package locktest

import (
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

func fanOut() []theorem {
	return []theorem{
		{"PerTickFansOutEachSlotOnce", perTick, nothing},
		{"FanOutNeedsNoFreeSlotOfItsOwnTickTwice", fanOutReleased, nothing},
		{"FanOutThatBeganIsNeverSkippedNorLate", fanOutBegan, nothing},
		{"SmallerPerTickOfARollOutCounts", fanOutSmaller, nothing},
		{"SlotGivenBackOfAFanOutIsTheOnlyOneOpen", fanOutGivenBack, nothing}, // Promise: P1
		{"SlotGivenBackOutOfTurnIsTheOnlyOneOpen", fanOutGivenBackOutOfTurn, nothing},
	}
}

// shareOf asks for one of three slots of a tick that two may have.
func shareOf(b *bench, n int) engine.Request {
	t := b.tick(n)
	t.PerTick = 2
	return engine.Request{Slots: 3, AnyLimit: true, Tick: t}
}

func perTick(b *bench) {
	b.known()
	first, second := b.wins(b.a, shareOf(b, 1)), b.wins(b.b, shareOf(b, 1))
	if first.Slot() != 0 || second.Slot() != 1 || second.Token() <= first.Token() {
		b.Errorf("slots %d, %d, tokens %d, %d", first.Slot(), second.Slot(), first.Token(), second.Token())
	}
	b.gets(b.a, shareOf(b, 1), engine.Decided)
	b.release(first)
	b.release(second)
	b.gets(b.a, shareOf(b, 1), engine.Decided)
	b.wins(b.a, shareOf(b, 2))
}

func fanOutReleased(b *bench) {
	b.known()
	first := b.wins(b.a, shareOf(b, 1))
	b.release(first) // its slot is free, and used
	if l := b.wins(b.b, shareOf(b, 1)); l.Slot() == first.Slot() {
		b.Errorf("slot %d was granted twice for one tick", l.Slot())
	}
}

func fanOutBegan(b *bench) {
	b.known()
	b.wins(b.a, shareOf(b, 1))
	b.wins(b.a, shareOf(b, 2))
	b.wins(b.a, shareOf(b, 2))
	r := shareOf(b, 1)
	r.Tick.IfHeld = "skipped"
	b.gets(b.b, r, engine.Held)
	r.Tick.Deadline, r.Tick.IfLate = b.now().Add(-time.Minute), "missed"
	if a := b.gets(b.b, r, engine.Decided); a.Outcome != "granted" {
		b.Errorf("decided as %q", a.Outcome)
	}
}

func fanOutSmaller(b *bench) {
	b.known()
	r := shareOf(b, 1)
	r.Tick.PerTick = 3
	b.wins(b.a, r)
	b.wins(b.a, r)
	b.gets(b.b, shareOf(b, 1), engine.Decided) // two are enough for this one
}

func fanOutGivenBack(b *bench) {
	b.known()
	runs(b, b.a, 0)
	first := b.wins(b.a, shareOf(b, 1))
	second := b.wins(b.b, shareOf(b, 1))
	b.release(first)
	b.giveBack(second)
	onlySlotOneIsOpen(b)
}

func fanOutGivenBackOutOfTurn(b *bench) {
	b.known()
	first := b.wins(b.a, shareOf(b, 1)) // 0 is open: 1 is out of turn
	second := b.wins(b.b, shareOf(b, 1))
	b.release(first)
	b.giveBack(second)
	onlySlotOneIsOpen(b)
}

func onlySlotOneIsOpen(b *bench) {
	b.Helper()
	r := shareOf(b, 1)
	r.Tick.IfHeld = "skipped"
	blocker := b.wins(b.a, engine.Request{Slots: 2, AnyLimit: true, Permanent: true})
	third := b.wins(b.a, engine.Request{Slots: 3, AnyLimit: true, Permanent: true})
	other := b.wins(b.a, engine.Request{Slots: 3, AnyLimit: true, Permanent: true})
	b.gets(b.b, r, engine.Held) // it ran in slot 0: never skipped
	b.release(blocker)
	b.gets(b.b, r, engine.Held) // slot 0 had its grant
	b.release(third)
	b.release(other)
	if l := b.wins(b.b, r); l.Slot() != 1 {
		b.Errorf("slot %d was granted for a tick that it ran already", l.Slot())
	}
	b.gets(b.a, r, engine.Decided)
}
