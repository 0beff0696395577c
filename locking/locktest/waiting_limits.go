package locktest

import "github.com/cronclave/cronclave/locking"

func otherLimit(b *bench) {
	b.wins(b.a, locking.Request{})
	b.fails(b.waits(b.b, 2), locking.ErrLimit)
	if n := b.inLine(); n != 0 {
		b.Errorf("%d in line", n)
	}
}

// Nobody knows how many slots a lock had that the server has forgotten: the number of the first who gets one counts, for those that line up meanwhile, too.
func limitsAfterForgetting(b *bench) {
	b.release(b.wins(b.a, locking.Request{}))
	b.forget()
	first := b.linesUp(b.a, 2)
	other, second, third := b.linesUp(b.b, 3), b.linesUp(b.b, 2), b.linesUp(b.b, 2)
	b.open()
	b.granted(first)
	b.fails(other, locking.ErrLimit)
	l := b.granted(second)
	b.stillWaits(third)
	b.release(l)
	b.granted(third)
}

// Clients of a pool whose number of slots is being lowered.
func fewerSlots(b *bench) {
	three := []*locking.Lease{b.wins(b.a, locking.Request{Slots: 3}), b.wins(b.a, locking.Request{Slots: 3}), b.wins(b.a, locking.Request{Slots: 3})}
	a := b.linesUp(b.b, 2, locking.WithAnyLimit())
	b.release(three[2])
	b.stillWaits(a)
	b.release(three[0])
	if l := b.granted(a); l.Slot() != 0 {
		b.Errorf("slot %d", l.Slot())
	}
}
