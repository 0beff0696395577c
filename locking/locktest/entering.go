package locktest

import (
	"context"
	"errors"

	"github.com/cronclave/cronclave/locking"
)

func entering() []theorem {
	return []theorem{
		{"EnteredLockIsHeldUntilTheLastRelease", enteredTwice, nothing},
		{"EnteredLockGoesToTheFirstInLine", enteredAndHandedOn, queue},
	}
}

func enteredTwice(b *bench) {
	m := b.a.Mutex(lock, locking.WithLease(long))
	ctx, l, err := m.Enter(b.ctx)
	if err != nil {
		b.Fatal(err)
	}
	_, again, ok, err := m.TryEnter(ctx)
	if again != l || !ok || err != nil {
		b.Fatalf("%p, want %p; %v, %v", again, l, ok, err)
	}
	b.gets(b.b, locking.Request{}, locking.Held)
	b.release(l)
	b.gets(b.b, locking.Request{}, locking.Held)
	b.release(again)
	next := b.wins(b.b, locking.Request{})
	if err := l.Release(b.ctx); !errors.Is(err, locking.ErrReleased) {
		b.Errorf("released more often than entered: %v", err)
	}
	if next.Token() <= l.Token() {
		b.Errorf("token %d after %d", next.Token(), l.Token())
	}
	b.until("one row is held", func() bool { return len(b.state().Rows) == 1 }) // votes for those who were refused are being taken back
	_, none, ok, err := m.TryEnter(context.WithoutCancel(ctx))
	if none != nil || ok || err != nil {
		b.Errorf("entered what another holds: %v, %v", ok, err)
	}
}

func enteredAndHandedOn(b *bench) {
	m := b.a.Mutex(lock, locking.WithLease(long))
	ctx, l, err := m.Enter(b.ctx)
	if err != nil {
		b.Fatal(err)
	}
	waiter := b.linesUp(b.b, 1)
	_, again, err := m.Enter(ctx) // passes those in line: it holds the lock
	if again != l || err != nil {
		b.Fatalf("%p, want %p; %v", again, l, err)
	}
	b.release(l)
	b.stillWaits(waiter)
	b.release(l)
	b.release(b.granted(waiter))
}
