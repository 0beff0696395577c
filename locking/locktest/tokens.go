package locktest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

func tokens() []theorem {
	return []theorem{
		{"TokensGrowAcrossExpiryAndFlush", tokensGrow, memory}, // Promise: P4
		{"TokensGrowAlthoughTheClockStepsBack", tokensGrowBack, memory},
		{"TokensGrowForAClientThatObservedNothing", tokensGrowUnobserved, memory}, // Promise: P4
		{"RenewalKeepsTheToken", renewalKeepsToken, nothing},
	}
}

func tokensGrow(b *bench) {
	var last locking.Token
	grows := func(how string, l holding) {
		b.Helper()
		if l.Token() <= last || l.Token() >= 1<<53 {
			b.Fatalf("%s: token %d after %d", how, l.Token(), last)
		}
		last = l.Token()
	}
	for range 20 {
		l := b.wins(b.a, lease.Request{})
		grows("release", l)
		b.release(l)
	}
	l := b.wins(b.b, lease.Request{})
	grows("another client", l)
	b.expire(l)
	grows("expiry", b.wins(b.a, lease.Request{}))
	b.forget()
	b.gets(b.a, lease.Request{}, lease.Closed)
	b.open()
	grows("flush", b.wins(b.a, lease.Request{}))
}

// A floor ahead of the clock is what a clock leaves that was stepped back.
func tokensGrowBack(b *bench) {
	l := b.wins(b.a, lease.Request{})
	ahead := b.now().Add(time.Hour).UnixMicro()
	b.set("floor", ahead)
	b.release(l)
	for _, c := range []*locking.Client{b.a, b.b} {
		l := b.wins(c, lease.Request{})
		if ahead++; int64(l.Token()) != ahead {
			b.Errorf("token %d, want %d", l.Token(), ahead)
		}
		b.release(l)
	}
	b.gets(b.a, lease.Request{Abstain: true}, lease.Held)
	b.forget() // now only the client knows what it has observed
	b.gets(b.a, lease.Request{}, lease.Closed)
	b.open()
	if l := b.wins(b.a, lease.Request{}); int64(l.Token()) != ahead+1 {
		b.Errorf("after a flush token %d, want %d", l.Token(), ahead+1)
	}
}

// No counter survives a flush; the server's clock does.
func tokensGrowUnobserved(b *bench) {
	l := b.wins(b.a, lease.Request{})
	b.forget()
	if next := b.wins(b.client("newcomer"), lease.Request{}); next.Token() <= l.Token() {
		b.Errorf("token %d after %d", next.Token(), l.Token())
	}
}

func renewalKeepsToken(b *bench) {
	l := b.wins(b.a, lease.Request{ID: "one", Lease: renewing})
	before := b.state().Running[0]
	after := before
	eventually(b, "a renewal", func() bool {
		after = b.state().Running[0]
		return after.Expires.After(before.Expires)
	})
	if after.Token != l.Token() {
		b.Errorf("after a renewal token %d until %v, before %d until %v", after.Token, after.Expires, before.Token, before.Expires)
	}
}

func entering() []theorem {
	return []theorem{
		{"EnteredLockIsHeldUntilTheLastRelease", enteredTwice, nothing}, // Promise: P3
		{"EnteredLockGoesToTheFirstInLine", enteredAndHandedOn, queue},
	}
}

func enteredTwice(b *bench) {
	m := b.a.Mutex(lock, locking.WithLease(long))
	ctx, l, err := m.LockReentrant(b.ctx)
	if err != nil {
		b.Fatal(err)
	}
	_, again, ok, err := m.TryLockReentrant(ctx)
	if again != l || !ok || err != nil {
		b.Fatalf("%p, want %p; %v, %v", again, l, ok, err)
	}
	b.gets(b.b, lease.Request{}, lease.Held)
	b.release(l)
	b.gets(b.b, lease.Request{}, lease.Held)
	b.release(again)
	next := b.wins(b.b, lease.Request{})
	if err := l.Release(b.ctx); !errors.Is(err, locking.ErrReleased) {
		b.Errorf("released more often than entered: %v", err)
	}
	if next.Token() <= l.Token() {
		b.Errorf("token %d after %d", next.Token(), l.Token())
	}
	eventually(b, "one row is held", func() bool { return len(b.state().Running) == 1 }) // votes for refused claims are being taken back
	_, none, ok, err := m.TryLockReentrant(context.WithoutCancel(ctx))
	if none != nil || ok || err != nil {
		b.Errorf("entered what another holds: %v, %v", ok, err)
	}
}

func enteredAndHandedOn(b *bench) {
	m := b.a.Mutex(lock, locking.WithLease(long))
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

func fences() []theorem {
	return []theorem{
		{"FenceRefusesSmallerTokens", fenceRefuses, fenced},         // Promise: P4
		{"FenceRefusesAHolderThatStoodStill", fenceHolders, fenced}, // Promise: P4
		{"FencePassesInOneOrderWhoeverAsks", fenceRace, fenced},     // Promise: P4
		{"FencesAndLocksOfOneNameAreApart", fenceApart, fenced},     // Promise: P4
		{"FenceStaysUnlessEverybodyForgetsIt", fenceIdle, fenced},   // Promise: P4
		{"FenceIsRememberedByItsObserver", observedFence, fenced},   // Promise: P4
		{"FenceWithADamagedRecordRefusesAll", fenceDamaged, fenced}, // Promise: P4
	}
}

const (
	resource = "reports"
	fenceKey = "{reports}:fence"
	greatest = locking.Token(1<<53 - 1)
)

// passes fails the test unless the token passes.
func passes(b *bench, f *locking.Fence, token locking.Token) {
	b.Helper()
	if err := f.Pass(b.ctx, token); err != nil {
		b.Fatalf("token %d: %v", token, err)
	}
}

// refusesToken fails the test unless the token is stale after the newest.
func refusesToken(b *bench, f *locking.Fence, token, newest locking.Token) {
	b.Helper()
	var stale *locking.StaleError
	err := f.Pass(b.ctx, token)
	if !errors.Is(err, locking.ErrStale) || !errors.As(err, &stale) || stale.Token != token || stale.Newest != newest {
		b.Fatalf("token %d after %d: %v", token, newest, err)
	}
}

func fenceRefuses(b *bench) {
	one, two := b.a.Fence(resource), b.b.Fence(resource)
	passes(b, one, 7)
	passes(b, one, 7) // the same holder, again
	refusesToken(b, two, 6, 7)
	refusesToken(b, two, 1, 7)
	passes(b, two, 7) // a run and its retry by another process have one token
	newest := locking.Token(b.now().UnixMicro())
	passes(b, two, newest)
	refusesToken(b, one, newest-1, newest) // every digit counts
	for _, f := range []*locking.Fence{b.client("newcomer").Fence(resource), b.a.Fence("{" + resource + "}")} {
		refusesToken(b, f, newest-1, newest)
	}
	passes(b, b.b.Fence("another"), 1)
}

// The schedule that fences are for.
func fenceHolders(b *bench) {
	paused := b.wins(b.a, lease.Request{})
	passes(b, b.a.Fence(resource), paused.Token())
	b.expire(paused)
	passes(b, b.b.Fence(resource), b.wins(b.b, lease.Request{}).Token())
	var stale *locking.StaleError
	if err := b.a.Fence(resource).Pass(b.ctx, paused.Token()); !errors.As(err, &stale) || stale.Token != paused.Token() {
		b.Errorf("a holder whose lease has ended: %v", err)
	}
}

// However many callers ask at the same time, a token that has passed keeps out all smaller ones that are brought
// after that.
func fenceRace(b *bench) {
	const holders, turns = 8, 20
	var mu sync.Mutex
	var passed locking.Token
	var wg sync.WaitGroup
	for h := range holders {
		c := []*locking.Client{b.a, b.b}[h%2]
		wg.Go(func() {
			for turn := range turns {
				token := locking.Token(1 + (turn*holders+h*7)%(holders*turns))
				mu.Lock()
				before := passed
				mu.Unlock()
				err := c.Fence(resource).Pass(b.ctx, token)
				switch {
				case err == nil && token < before:
					b.Errorf("token %d passed after %d had", token, before)
				case err != nil && !errors.Is(err, locking.ErrStale):
					b.Error(err)
				}
				if mu.Lock(); err == nil {
					passed = max(passed, token)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	refusesToken(b, b.client("newcomer").Fence(resource), passed-1, passed)
}

func fenceApart(b *bench) {
	held := b.wins(b.a, lease.Request{Lock: resource})
	passes(b, b.a.Fence(resource), 5)
	b.gets(b.b, lease.Request{Lock: resource}, lease.Held)
	b.release(held)
	b.wins(b.b, lease.Request{Lock: resource})
	refusesToken(b, b.b.Fence(resource), 4, 5)
	a := b.ask(b.a, lease.Request{Lock: fenceKey})
	if a.Verdict != lease.Unknown || errors.Is(a.Err, locking.ErrUnknown) {
		b.Errorf("a lock with the key of a fence: %q, %v", a.Verdict, a.Err)
	}
	for _, bad := range []string{"", "a}", "{a}{b}"} {
		if err := b.a.Fence(bad).Pass(b.ctx, 5); err == nil || errors.Is(err, locking.ErrUnknown) {
			b.Errorf("resource %q: %v", bad, err)
		}
	}
	for _, bad := range []locking.Token{0, -5, greatest + 1} {
		if err := b.a.Fence(resource).Pass(b.ctx, bad); err == nil || errors.Is(err, locking.ErrUnknown) {
			b.Errorf("token %d: %v", bad, err)
		}
	}
}

// fenceLife is how long the server keeps the fence when it is not asked for; 0 is for good.
func fenceLife(b *bench) time.Duration {
	b.Helper()
	d, err := b.rdb.PTTL(b.ctx, b.prefix+fenceKey).Result()
	if err != nil || d == -2 {
		b.Fatalf("there is no fence (%v)", err)
	}
	return max(d, 0)
}

func fenceIdle(b *bench) {
	short, longer, ever := b.a.Fence(resource, locking.ForgetAfter(long)), b.b.Fence(resource, locking.ForgetAfter(2*long)), b.a.Fence(resource)
	passes(b, short, 3)
	if d := fenceLife(b); d == 0 || d > long {
		b.Errorf("life %v, want at most %v", d, long)
	}
	passes(b, longer, 3)
	refusesToken(b, short, 2, 3)
	if d := fenceLife(b); d <= long || d > 2*long {
		b.Errorf("life %v, want nearly %v", d, 2*long)
	}
	if err := b.rdb.PExpire(b.ctx, b.prefix+fenceKey, long/2).Err(); err != nil {
		b.Fatal(err)
	}
	refusesToken(b, short, 2, 3) // a refused caller counts as one that asks, too
	if d := fenceLife(b); d <= long/2 {
		b.Errorf("life %v although somebody has just asked", d)
	}
	refusesToken(b, ever, 2, 3)
	passes(b, short, 4)
	if d := fenceLife(b); d != 0 {
		b.Errorf("a fence that somebody wants for good lives %v", d)
	}
	if err := b.a.Fence("negative", locking.ForgetAfter(-1)).Pass(b.ctx, 1); err == nil {
		b.Error("a negative time is taken")
	}
}

// A token is gone with the server's memory if no client that asks again has seen it.
func observedFence(b *bench) {
	passes(b, b.a.Fence(resource), 9)
	if err := b.rdb.Del(b.ctx, b.prefix+fenceKey).Err(); err != nil {
		b.Fatal(err)
	}
	passes(b, b.client("newcomer").Fence(resource), 5)
	refusesToken(b, b.a.Fence(resource), 8, 9)
	refusesToken(b, b.client("newcomer").Fence(resource), 5, 9)
}

func fenceDamaged(b *bench) {
	for _, record := range []string{"", "x"} {
		if err := b.rdb.Set(b.ctx, b.prefix+fenceKey, record, 0).Err(); err != nil {
			b.Fatal(err)
		}
		if err := b.a.Fence(resource).Pass(b.ctx, greatest); err == nil || errors.Is(err, locking.ErrStale) {
			b.Errorf("record %q: %v", record, err)
		}
	}
	err := errors.Join(b.rdb.Del(b.ctx, b.prefix+fenceKey).Err(), b.rdb.HSet(b.ctx, b.prefix+fenceKey, "a", "b").Err())
	if err != nil {
		b.Fatal(err)
	}
	if err := b.a.Fence(resource).Pass(b.ctx, greatest); err == nil || errors.Is(err, locking.ErrStale) {
		b.Errorf("a record of another type: %v", err)
	}
}
