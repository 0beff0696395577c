package locktest

import (
	"slices"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// Sets of locks beside those who wait for one of them, and in wait themselves.

// waitsFor lines up for a member by itself.
func waitsFor(b *bench, c *engine.Client, name string) chan *engine.Lease {
	b.Helper()
	granted := make(chan *engine.Lease, 1)
	go func() {
		l, err := c.Mutex(name, engine.WithLease(long)).Lock(b.ctx)
		if err != nil && b.ctx.Err() == nil {
			b.Error(err)
		}
		granted <- l
	}()
	eventually(b, "it is in line", func() bool {
		n, err := b.rdb.ZCard(b.ctx, b.prefix+name+":queue").Result()
		return n > 0 && err == nil
	})
	return granted
}

func receives(b *bench, granted chan *engine.Lease) *engine.Lease {
	b.Helper()
	return grantOf(b, &attempt{lease: granted})
}

func setPassesNobody(b *bench) {
	held := b.wins(b.b, engine.Request{Lock: member(2)})
	waiter := waitsFor(b, b.b, member(2))
	expireIn(b, member(2), held) // the one in line has no message yet
	setIsRefused(b, set3(b, b.a))
	l := receives(b, waiter)
	setIsRefused(b, set3(b, b.a))
	b.release(l)
	releaseAll(b, locksAll(b, set3(b, b.a)))
}

func setHandsOn(b *bench) {
	first := b.wins(b.b, engine.Request{Lock: member(1)})
	third := b.wins(b.b, engine.Request{Lock: member(3)})
	waiter := waitsFor(b, b.b, member(1))
	setIsRefused(b, set3(b, b.a))
	b.release(first)
	l := receives(b, waiter)
	setIsRefused(b, set3(b, b.a))
	b.release(l)
	b.release(third)
}

func setWaits(b *bench) {
	held := b.wins(b.b, engine.Request{Lock: member(2)})
	got := make(chan *engine.LeaseSet, 1)
	go func() {
		leases, err := set3(b, b.a).Lock(b.ctx)
		if err != nil {
			b.Error(err)
		}
		got <- leases
	}()
	eventually(b, "it was tried", func() bool { return lastCall(b) != nil })
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
	if len(slices.DeleteFunc(holders(b), func(id string) bool { return id == "" })) != 3 {
		b.Errorf("the rows are held by %q", holders(b))
	}
	releaseAll(b, leases)
}
