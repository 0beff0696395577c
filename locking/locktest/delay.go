package locktest

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

func delays() []theorem {
	return []theorem{
		{"ExpiredSlotStaysShutForTheDelay", delayAfterExpiry, queue}, // Promise: P3
		{"ReleasedSlotIsOpenAtOnce", noDelayAfterRelease, queue},
		{"DelayOfOneThatWaitedCounts", delayOfAWaiter, queue},
		{"DelayOutlastsIdle", delayOutlastsIdle, queue},
		{"DelayAndLimitArePutBackWithTheRow", delayPutBack, queue},
		{"GrantThatNobodyConfirmsHasNoDelay", noDelayWithoutAHolder, queue},
	}
}

func delayAfterExpiry(b *bench) {
	r := engine.Request{Delay: time.Hour}
	held := b.wins(b.a, r)
	b.expire(held)
	a := b.gets(b.b, r, engine.Held)
	if left := a.Until.Sub(b.now()); left < 50*time.Minute || left > time.Hour || a.Holder != "" {
		b.Errorf("held by %q for %v", a.Holder, left)
	}
	b.set("delayed", "0 1;")
	b.release(b.wins(b.b, r))
}

func noDelayAfterRelease(b *bench) {
	r := engine.Request{Delay: time.Hour, Slots: 2}
	b.expire(b.wins(b.a, r))
	second := b.wins(b.b, r)
	if second.Slot() != 1 {
		b.Errorf("slot %d, the other is shut", second.Slot())
	}
	b.gets(b.b, r, engine.Held)
	b.release(second)
	b.release(b.wins(b.b, r))
}

func delayOfAWaiter(b *bench) {
	held := b.wins(b.a, engine.Request{})
	next := linesUp(b, b.b, 1, engine.WithDelay(time.Hour))
	b.release(held)
	b.expire(grantOf(b, next))
	b.gets(b.a, engine.Request{Delay: time.Hour}, engine.Held)
}

// The lock is remembered for as long as its slot is shut.
func delayOutlastsIdle(b *bench) {
	for slots := 1; slots <= 2; slots++ {
		name := fmt.Sprint(lock, slots)
		b.wins(b.a, engine.Request{Lock: name, Slots: slots, Delay: time.Hour})
		if left := b.rdb.PTTL(b.ctx, b.prefix+"{"+name+"}").Val(); left < time.Hour+long-time.Minute {
			b.Errorf("%s is forgotten after %v", name, left)
		}
	}
}

func delayPutBack(b *bench) {
	l := b.wins(b.a, engine.Request{Lease: renewing, Delay: time.Hour})
	b.forget()
	heldAgain(b, l)
	b.gets(b.b, engine.Request{Slots: 5}, engine.Unknown)
	b.open()
	b.gets(b.b, engine.Request{Slots: 5}, engine.Unknown)
	b.expire(l)
	b.gets(b.b, engine.Request{Delay: time.Hour}, engine.Held)
}

// The lock was released by its last holder, so no delay follows, although the next in line is
// dead: it never held a lease.
func noDelayWithoutAHolder(b *bench) {
	r := engine.Request{Delay: time.Hour}
	held := b.wins(b.a, r)
	leaves(b, engine.WithDelay(time.Hour))
	b.release(held)
	rows := b.state().Rows
	if len(rows) != 1 {
		b.Fatalf("rows: %v", rows)
	}
	b.set("e0", b.now().Add(-time.Millisecond).UnixMicro())
	b.release(b.wins(b.b, r))
}
