package locktest

import (
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
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
	var last engine.Token
	grows := func(how string, l *engine.Lease) {
		b.Helper()
		if l.Token() <= last || l.Token() >= 1<<53 {
			b.Fatalf("%s: token %d after %d", how, l.Token(), last)
		}
		last = l.Token()
	}
	for range 20 {
		l := b.wins(b.a, engine.Request{})
		grows("release", l)
		b.release(l)
	}
	l := b.wins(b.b, engine.Request{})
	grows("another client", l)
	b.expire(l)
	grows("expiry", b.wins(b.a, engine.Request{}))
	b.forget()
	b.gets(b.a, engine.Request{}, engine.Closed)
	b.open()
	grows("flush", b.wins(b.a, engine.Request{}))
}

// A floor ahead of the clock is what a clock leaves that was stepped back.
func tokensGrowBack(b *bench) {
	l := b.wins(b.a, engine.Request{})
	ahead := b.now().Add(time.Hour).UnixMicro()
	b.set("floor", ahead)
	b.release(l)
	for _, c := range []*engine.Client{b.a, b.b} {
		l := b.wins(c, engine.Request{})
		if ahead++; int64(l.Token()) != ahead {
			b.Errorf("token %d, want %d", l.Token(), ahead)
		}
		b.release(l)
	}
	b.gets(b.a, engine.Request{Abstain: true}, engine.Held)
	b.forget() // now only the client knows what it has observed
	b.gets(b.a, engine.Request{}, engine.Closed)
	b.open()
	if l := b.wins(b.a, engine.Request{}); int64(l.Token()) != ahead+1 {
		b.Errorf("after a flush token %d, want %d", l.Token(), ahead+1)
	}
}

// No counter survives a flush; the server's clock does.
func tokensGrowUnobserved(b *bench) {
	l := b.wins(b.a, engine.Request{})
	b.forget()
	if next := b.wins(b.client("newcomer"), engine.Request{}); next.Token() <= l.Token() {
		b.Errorf("token %d after %d", next.Token(), l.Token())
	}
}

func renewalKeepsToken(b *bench) {
	l := b.wins(b.a, engine.Request{ID: "one", Lease: renewing})
	before := b.state().Rows[0]
	after := before
	eventually(b, "a renewal", func() bool {
		after = b.state().Rows[0]
		return after.Expiry.After(before.Expiry)
	})
	if after.Token != l.Token() {
		b.Errorf("after a renewal token %d until %v, before %d until %v", after.Token, after.Expiry, before.Token, before.Expiry)
	}
}
