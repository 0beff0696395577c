package locktest

import (
	"time"

	"github.com/cronclave/cronclave/locking"
)

func tokens() []theorem {
	return []theorem{
		{"TokensGrowAcrossExpiryAndFlush", tokensGrow, memory},
		{"TokensGrowAlthoughTheClockStepsBack", tokensGrowBack, memory},
		{"TokensGrowForAClientThatWitnessedNothing", tokensGrowUnwitnessed, memory},
		{"RenewalKeepsTheToken", renewalKeepsToken, nothing},
	}
}

func tokensGrow(b *bench) {
	var last locking.Token
	grows := func(how string, l *locking.Lease) {
		b.Helper()
		if l.Token() <= last || l.Token() >= 1<<53 {
			b.Fatalf("%s: token %d after %d", how, l.Token(), last)
		}
		last = l.Token()
	}
	for range 20 {
		l := b.wins(b.a, locking.Request{})
		grows("release", l)
		b.release(l)
	}
	l := b.wins(b.b, locking.Request{})
	grows("another client", l)
	b.expire(l)
	grows("expiry", b.wins(b.a, locking.Request{}))
	b.forget()
	b.gets(b.a, locking.Request{}, locking.Closed)
	b.open()
	grows("flush", b.wins(b.a, locking.Request{}))
}

// A floor ahead of the clock is what a clock leaves that was stepped back.
func tokensGrowBack(b *bench) {
	l := b.wins(b.a, locking.Request{})
	ahead := b.now().Add(time.Hour).UnixMicro()
	b.set("floor", ahead)
	b.release(l)
	for _, c := range []*locking.Client{b.a, b.b} {
		l := b.wins(c, locking.Request{})
		if ahead++; int64(l.Token()) != ahead {
			b.Errorf("token %d, want %d", l.Token(), ahead)
		}
		b.release(l)
	}
	b.gets(b.a, locking.Request{Abstain: true}, locking.Held)
	b.forget() // now only the witness knows
	b.gets(b.a, locking.Request{}, locking.Closed)
	b.open()
	if l := b.wins(b.a, locking.Request{}); int64(l.Token()) != ahead+1 {
		b.Errorf("after a flush token %d, want %d", l.Token(), ahead+1)
	}
}

// No counter survives a flush; the server's clock does.
func tokensGrowUnwitnessed(b *bench) {
	l := b.wins(b.a, locking.Request{})
	b.forget()
	if next := b.wins(b.client("newcomer"), locking.Request{}); next.Token() <= l.Token() {
		b.Errorf("token %d after %d", next.Token(), l.Token())
	}
}

func renewalKeepsToken(b *bench) {
	l := b.wins(b.a, locking.Request{ID: "one", Lease: renewing})
	before := b.state().Rows[0]
	after := before
	b.until("a renewal", func() bool {
		after = b.state().Rows[0]
		return after.Expiry.After(before.Expiry)
	})
	if after.Token != l.Token() {
		b.Errorf("after a renewal token %d until %v, before %d until %v", after.Token, after.Expiry, before.Token, before.Expiry)
	}
}
