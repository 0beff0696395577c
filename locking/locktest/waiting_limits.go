package locktest

import "github.com/cronclave/cronclave/internal/lease/engine"

func otherLimit(b *bench) {
	b.wins(b.a, engine.Request{})
	failsWith(b, waits(b, b.b, 2), engine.ErrLimit)
	if n := inLine(b); n != 0 {
		b.Errorf("%d in line", n)
	}
}

// The number of slots is lost when the server forgets a lock: the number of the first that gets one counts, for
// those that line up meanwhile, too.
func limitsAfterForgetting(b *bench) {
	b.release(b.wins(b.a, engine.Request{}))
	b.forget()
	first := linesUp(b, b.a, 2)
	other, second, third := linesUp(b, b.b, 3), linesUp(b, b.b, 2), linesUp(b, b.b, 2)
	b.open()
	grantOf(b, first)
	failsWith(b, other, engine.ErrLimit)
	l := grantOf(b, second)
	stillWaits(b, third)
	b.release(l)
	grantOf(b, third)
}

// Clients of a pool whose number of slots is being lowered.
func fewerSlots(b *bench) {
	three := []*engine.Lease{b.wins(b.a, engine.Request{Slots: 3}), b.wins(b.a, engine.Request{Slots: 3}), b.wins(b.a, engine.Request{Slots: 3})}
	a := linesUp(b, b.b, 2, engine.WithAnyLimit())
	b.release(three[2])
	stillWaits(b, a)
	b.release(three[0])
	if l := grantOf(b, a); l.Slot() != 0 {
		b.Errorf("slot %d", l.Slot())
	}
}
