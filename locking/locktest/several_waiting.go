package locktest

import (
	"slices"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// Sets of locks beside those who wait for one of them, and in wait themselves.

// waitsFor lines up for a member by itself.
func (b *bench) waitsFor(c *engine.Client, name string) chan *engine.Lease {
	b.Helper()
	granted := make(chan *engine.Lease, 1)
	go func() {
		l, err := c.Mutex(name, engine.WithLease(long)).Lock(b.ctx)
		if err != nil && b.ctx.Err() == nil {
			b.Error(err)
		}
		granted <- l
	}()
	b.until("it is in line", func() bool {
		n, err := b.rdb.ZCard(b.ctx, b.prefix+name+":queue").Result()
		return n > 0 && err == nil
	})
	return granted
}

func (b *bench) receives(granted chan *engine.Lease) *engine.Lease {
	b.Helper()
	return b.granted(&attempt{lease: granted})
}

func setPassesNobody(b *bench) {
	held := b.wins(b.b, engine.Request{Lock: member(2)})
	waiter := b.waitsFor(b.b, member(2))
	b.expireIn(member(2), held) // the one in line has no message yet
	b.refused(b.set3(b.a))
	l := b.receives(waiter)
	b.refused(b.set3(b.a))
	b.release(l)
	b.releaseAll(b.locksAll(b.set3(b.a)))
}

func setHandsOn(b *bench) {
	first := b.wins(b.b, engine.Request{Lock: member(1)})
	third := b.wins(b.b, engine.Request{Lock: member(3)})
	waiter := b.waitsFor(b.b, member(1))
	b.refused(b.set3(b.a))
	b.release(first)
	l := b.receives(waiter)
	b.refused(b.set3(b.a))
	b.release(l)
	b.release(third)
}

func setWaits(b *bench) {
	held := b.wins(b.b, engine.Request{Lock: member(2)})
	got := make(chan *engine.LeaseSet, 1)
	go func() {
		leases, err := b.set3(b.a).Lock(b.ctx)
		if err != nil {
			b.Error(err)
		}
		got <- leases
	}()
	b.until("it was tried", func() bool { return b.lastCall() != nil })
	for n := 1; n <= 3; n += 2 { // it holds nothing while it waits
		l, err := b.b.Mutex(member(n), engine.WithLease(long)).Lock(b.ctx)
		if err != nil {
			b.Fatal(err)
		}
		b.release(l)
	}
	b.release(held)
	leases := <-got
	if leases == nil {
		return
	}
	if len(slices.DeleteFunc(b.holders(), func(id string) bool { return id == "" })) != 3 {
		b.Errorf("the rows are held by %q", b.holders())
	}
	b.releaseAll(leases)
}
