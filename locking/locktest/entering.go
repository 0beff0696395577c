package locktest

import (
	"context"
	"errors"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

func entering() []theorem {
	return []theorem{
		{"EnteredLockIsHeldUntilTheLastRelease", enteredTwice, nothing}, // Promise: P3
		{"EnteredLockGoesToTheFirstInLine", enteredAndHandedOn, queue},
	}
}

func enteredTwice(b *bench) {
	m := b.a.Mutex(lock, engine.WithLease(long))
	ctx, l, err := m.LockReentrant(b.ctx)
	if err != nil {
		b.Fatal(err)
	}
	_, again, ok, err := m.TryLockReentrant(ctx)
	if again != l || !ok || err != nil {
		b.Fatalf("%p, want %p; %v, %v", again, l, ok, err)
	}
	b.gets(b.b, engine.Request{}, engine.Held)
	b.release(l)
	b.gets(b.b, engine.Request{}, engine.Held)
	b.release(again)
	next := b.wins(b.b, engine.Request{})
	if err := l.Release(b.ctx); !errors.Is(err, engine.ErrReleased) {
		b.Errorf("released more often than entered: %v", err)
	}
	if next.Token() <= l.Token() {
		b.Errorf("token %d after %d", next.Token(), l.Token())
	}
	eventually(b, "one row is held", func() bool { return len(b.state().Rows) == 1 }) // votes for refused claims are being taken back
	_, none, ok, err := m.TryLockReentrant(context.WithoutCancel(ctx))
	if none != nil || ok || err != nil {
		b.Errorf("entered what another holds: %v, %v", ok, err)
	}
}

func enteredAndHandedOn(b *bench) {
	m := b.a.Mutex(lock, engine.WithLease(long))
	ctx, l, err := m.LockReentrant(b.ctx)
	if err != nil {
		b.Fatal(err)
	}
	waiter := linesUp(b, b.b, 1)
	_, again, err := m.LockReentrant(ctx) // passes those in line: it holds the lock
	if again != l || err != nil {
		b.Fatalf("%p, want %p; %v", again, l, err)
	}
	b.release(l)
	stillWaits(b, waiter)
	b.release(l)
	b.release(grantOf(b, waiter))
}
