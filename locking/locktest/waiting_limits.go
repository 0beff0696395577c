package locktest

import "github.com/cronclave/cronclave/internal/lease/engine"

func otherLimit(b *bench) {
	b.wins(b.a, engine.Request{})
	b.fails(b.waits(b.b, 2), engine.ErrLimit)
	if n := b.inLine(); n != 0 {
		b.Errorf("%d in line", n)
	}
}

// The number of slots is lost when the server forgets a lock: the number of the first that gets one counts, for
// those that line up meanwhile, too.
func limitsAfterForgetting(b *bench) {
	b.release(b.wins(b.a, engine.Request{}))
	b.forget()
	first := b.linesUp(b.a, 2)
	other, second, third := b.linesUp(b.b, 3), b.linesUp(b.b, 2), b.linesUp(b.b, 2)
	b.open()
	b.granted(first)
	b.fails(other, engine.ErrLimit)
	l := b.granted(second)
	b.stillWaits(third)
	b.release(l)
	b.granted(third)
}

// Clients of a pool whose number of slots is being lowered.
func fewerSlots(b *bench) {
	three := []*engine.Lease{b.wins(b.a, engine.Request{Slots: 3}), b.wins(b.a, engine.Request{Slots: 3}), b.wins(b.a, engine.Request{Slots: 3})}
	a := b.linesUp(b.b, 2, engine.WithAnyLimit())
	b.release(three[2])
	b.stillWaits(a)
	b.release(three[0])
	if l := b.granted(a); l.Slot() != 0 {
		b.Errorf("slot %d", l.Slot())
	}
}
