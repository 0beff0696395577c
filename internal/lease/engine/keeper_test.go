package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

func TestKeeperRenewsInBatchesAThirdOfTheWay(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		const leases = 1200
		requests := make([]Request, leases)
		for i := range requests {
			requests[i] = Request{Lock: fmt.Sprint(i), Lease: 30 * time.Second}
		}
		for _, a := range c.AcquireAll(w.Context(), requests) {
			if a.Verdict != Granted {
				w.Fatal(a.Verdict, a.Err)
			}
		}
		w.pass(10*time.Second + 10*time.Millisecond) // the first time the server has to learn the script
		for range 3 {
			w.sent()
			w.pass(9980 * time.Millisecond)
			if sent := w.sent(); len(sent) != 0 {
				w.Fatalf("before a third of the lease: pipelines of %v", sent)
			}
			w.pass(20 * time.Millisecond)
			sent := w.sent()
			slices.Sort(sent)
			if fmt.Sprint(sent) != "[200 1000]" {
				w.Fatalf("%d leases in pipelines of %v", leases, sent)
			}
		}
	})
}

func TestLeasesDueSoonTravelTogether(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		for i := range 10 {
			w.lock(c, fmt.Sprint(i), 30*time.Second)
			w.pass(50 * time.Millisecond)
		}
		w.pass(10 * time.Second)
		w.sent()
		w.pass(10 * time.Second)
		if sent := w.sent(); fmt.Sprint(sent) != "[10]" {
			w.Errorf("pipelines of %v", sent)
		}
	})
}

func TestRenewalOutlivesScriptFlush(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		var leases []*Lease
		for i := range 20 {
			leases = append(leases, w.lock(c, fmt.Sprint(i), 3*time.Second))
		}
		for range 5 {
			if err := c.cfg.Redis.ScriptFlush(w.Context()).Err(); err != nil {
				w.Fatal(err)
			}
			w.pass(2 * time.Second)
		}
		for _, l := range leases {
			if l.Context().Err() != nil {
				w.Fatal(context.Cause(l.Context()))
			}
		}
	})
}

func TestRenewalsResumeAfterAShortOutage(t *testing.T) {
	for _, how := range []string{"mute", "deaf"} {
		for _, outage := range []time.Duration{5 * time.Second, 8 * time.Second} {
			t.Run(fmt.Sprint(how, " for ", outage), func(t *testing.T) {
				inBubble(t, func(w *wire) {
					c, closeAll := w.client(Config{})
					defer closeAll()
					l := w.lock(c, "x", 10*time.Second)
					w.fail(how)
					w.pass(outage)
					w.fail()
					w.pass(time.Minute)
					if err := context.Cause(l.Context()); err != nil {
						w.Fatalf("after an outage of %v: %v", outage, err)
					}
					if warned, want := closed(l.Endangered()), outage > 7*time.Second; warned != want {
						w.Errorf("warned: %v, want %v", warned, want)
					}
					if rows := w.rows("x"); len(rows) != 1 || rows[0].Token != l.Token() {
						w.Errorf("rows %+v", rows)
					}
				})
			})
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestLeaseEndsBeforeItsRowWhenTheServerIsSilent ends a lease on the client before its row on a silent server ends.
// Promise: P3
func TestLeaseEndsBeforeItsRowWhenTheServerIsSilent(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		l := w.lock(c, "x", 10*time.Second)
		granted := time.Now()
		w.fail("mute")
		warning := 10*time.Second - 100*time.Millisecond - 2*time.Millisecond - l.Length()/3
		w.pass(warning - time.Millisecond)
		if closed(l.Endangered()) {
			w.Error("warned too soon")
		}
		w.pass(time.Millisecond)
		if !closed(l.Endangered()) || l.Context().Err() != nil {
			w.Errorf("a third before the end: warned %v, context %v", closed(l.Endangered()), l.Context().Err())
		}
		<-l.Context().Done()
		if after := time.Since(granted); after != lease.HoldFor(10*time.Second) || after != 9898*time.Millisecond {
			w.Errorf("it ended after %v", after)
		}
		if err := context.Cause(l.Context()); !errors.Is(err, ErrLost) {
			w.Errorf("cause: %v", err)
		}
		if n := len(w.rows("x")); n != 1 {
			w.Errorf("its row ended before")
		}
		if left := l.Remaining(); left > 0 {
			w.Errorf("remaining: %v", left)
		}
	})
}

// A grant that was waited for arrives by a message, which may take a while: its lease ends no later for that.
// Promise: P3
func TestLeaseThatWasPublishedLateEndsBeforeItsRow(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		other := w.beside()
		holder, closeHolder := other.client(Config{})
		defer closeHolder()
		held := other.lock(holder, "x", time.Hour)
		asked, askedAt := w.clock(), time.Now().UnixMicro()
		got := make(chan *Lease, 1)
		go func() {
			l, err := c.Mutex("x", WithLease(10*time.Second)).Lock(w.Context())
			if err != nil {
				w.Error(err)
			}
			got <- l
		}()
		granted := askedAt + 200e3      // for a second, until it is confirmed
		w.pass(1100 * time.Millisecond) // shortly after a look of the keeper, which would mend it
		w.fail("mute")
		channel, waiting := holder.cfg.Redis.PubSubChannels(w.Context(), c.cfg.Prefix+"bell:*").Val(), holder.cfg.Redis.ZRange(w.Context(), c.lockKey("x")+":queue", 0, -1).Val()
		if len(channel) != 1 || len(waiting) != 1 {
			w.Fatalf("channels %q, waiting %q", channel, waiting)
		}
		grant := fmt.Sprintf("%s 0 %d %d %d %d", waiting[0], granted, granted+1e6, granted, int64(10e6))
		if err := holder.cfg.Redis.Publish(w.Context(), channel[0], grant).Err(); err != nil {
			w.Fatal(err)
		}
		l := <-got
		<-l.Context().Done()
		if end := w.clock(); end != l.Deadline() || end > asked+1200*time.Millisecond {
			w.Errorf("it ended %v after the request, its deadline is after %v, and its row's end after 1.2s", end-asked, l.Deadline()-asked)
		}
		w.fail()
		other.release(held)
	})
}

// A lease that has ended before its batch is complete is not handed out. The granted requests of a batch wait
// for the others, here for one whose script the server has to learn.
// Promise: P3
func TestGrantThatWaitsForItsBatchIsNotHandedOutTooLate(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{Timeout: 2 * time.Second})
		defer closeAll()
		c.AcquireAll(w.Context(), []Request{{Lock: "warm1"}, {Lock: "warm2"}})
		w.slow(800 * time.Millisecond)
		defer w.fail()
		const many = 51 // slots of a request that goes by itself
		answers := c.AcquireAll(w.Context(), []Request{{Lock: "x", Lease: 1500 * time.Millisecond}, {Lock: "y", Lease: time.Minute}, {Lock: "z", Slots: many}})
		for i, verdict := range []Verdict{Unknown, Granted, Granted} {
			if a := answers[i]; a.Verdict != verdict || (verdict == Unknown) != errors.Is(a.Err, ErrUnknown) {
				w.Errorf("request %d: %q, %v; want %q", i, a.Verdict, a.Err, verdict)
			}
		}
		if took := w.clock(); took < 1500*time.Millisecond {
			w.Errorf("two rounds took %v", took)
		}
	})
}

// The server counts from when it got the request. A holder that counts from the reply believes for too long.
// Promise: P3
func TestDeadlineCountsFromBeforeTheRequest(t *testing.T) {
	const length, slow = 10 * time.Second, 2 * time.Second
	t.Run("of the grant", func(t *testing.T) {
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{Timeout: 5 * time.Second})
			defer closeAll()
			for range 2 { // the connection and the script are there, also that for a compact lock
				w.release(w.lock(c, "x", length))
				w.pass(time.Millisecond)
			}
			w.slow(slow)
			asked := time.Now()
			l := w.lock(c, "x", length)
			w.fail("mute")
			<-l.Context().Done()
			if after := time.Since(asked); after > lease.HoldFor(length) {
				w.Errorf("it ended %v after it was asked for", after)
			}
			if len(w.rows("x")) != 1 {
				w.Error("its row had ended before")
			}
		})
	})
	t.Run("of a renewal", func(t *testing.T) {
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{Timeout: 5 * time.Second})
			defer closeAll()
			l := w.lock(c, "x", length)
			w.pass(length/3 - 10*time.Millisecond)
			w.slow(slow)
			w.pass(slow + 20*time.Millisecond)
			renewed := w.rows("x")[0].Expiry
			w.fail("mute")
			<-l.Context().Done()
			if now := time.Now(); !now.Before(renewed) || now.Before(renewed.Add(-length/50)) {
				w.Errorf("it ended at %v, its row at %v", now, renewed)
			}
		})
	})
}

func TestEndedLeaseIsNotRenewed(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		l := w.lock(c, "x", 10*time.Second)
		w.lock(c, "y", 30*time.Second)
		l.end(ErrLost) // its deadline passes between two attempts
		w.pass(9 * time.Second)
		if rows := w.rows("x"); len(rows) != 1 || time.Until(rows[0].Expiry) > time.Second {
			w.Errorf("a lease that has ended was renewed: %+v", rows)
		}
		l.extendTo(c.cfg.Clock() + time.Hour) // a reply that came late
		if left := l.Remaining(); left > time.Second {
			w.Errorf("remaining: %v", left)
		}
	})
}

// Timers stand still while a machine sleeps; the clock does not.
func TestSuspendedHolderNoticesThatItsLeaseHasEnded(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		l := w.lock(c, "x", time.Hour)
		w.pass(time.Minute)
		w.fail("mute")
		w.Suspend(2 * time.Hour)
		w.pass(checkEvery + time.Millisecond)
		if err := context.Cause(l.Context()); !errors.Is(err, ErrLost) {
			w.Errorf("two hours later: %v", err)
		}
	})
}

func TestSteppedServerClockDelaysNobody(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		l := w.lock(c, "x", 3*time.Second)
		for _, by := range []time.Duration{-time.Hour, time.Hour} {
			step(c, by) // as if it had been so before the step
			w.release(w.lock(c, "y", time.Minute))
			w.pass(10 * time.Second)
			step(c, by)
			w.pass(10 * time.Second)
			if err := context.Cause(l.Context()); err != nil {
				w.Fatal(err)
			}
		}
	})
}

// step has the client learn that the server's clock was set: as if every reply before had told it so.
func step(c *Client, by time.Duration) {
	c.one().StepClock(by)
}

func (w *wire) release(l *Lease) {
	w.Helper()
	if err := l.Release(w.Context()); err != nil {
		w.Error(err)
	}
}

// A clock that was stepped back leaves rows that last for longer than their lease.
func TestHolderRelysOnNoMoreThanItsLease(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		now := w.Start.UnixMicro()
		r := Request{Lease: time.Minute}
		g := lease.Grant{Token: Token(now), Attempt: 1, Expiry: now + 3600e6, Now: now, RenewAfter: time.Second}
		if l := newLease(c, &r, &g); l.deadline > lease.HoldFor(time.Minute) || l.renewAt > 20*time.Second {
			w.Errorf("deadline %v, renewal at %v", l.deadline, l.renewAt)
		}
	})
}

func TestGrantAfterTheEndOfALeaseIsANewLease(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		r := Request{Lock: "x", ID: "same", Lease: time.Hour}
		first := c.Acquire(w.Context(), r).Lease
		if second := c.Acquire(w.Context(), r).Lease; second != first {
			w.Fatal("two leases of one grant")
		}
		if err := c.cfg.Redis.FlushAll(w.Context()).Err(); err != nil {
			w.Fatal(err)
		}
		w.pass(time.Second)
		c.observed.Delete("x")
		second := c.Acquire(w.Context(), r).Lease
		if second == first || second.Token() <= first.Token() {
			w.Fatalf("token %d, then %d", first.Token(), second.Token())
		}
		if err := context.Cause(first.Context()); !errors.Is(err, ErrLost) {
			w.Errorf("the first one: %v", err)
		}
		w.pass(2 * time.Hour)
		if second.Context().Err() != nil {
			w.Error("the second one was not renewed")
		}
	})
}

// OnExtend reports the deadline of a lease each time that it moves, and no later than the server's.
func TestExtensionsAreReported(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		l := w.lock(c, "x", 9*time.Second)
		first := l.Deadline()
		var told []time.Duration
		stop := l.OnExtend(func(deadline time.Duration) {
			if deadline != l.Deadline() { // it may ask the lease, too
				w.Errorf("told %v, but it is %v", deadline, l.Deadline())
			}
			told = append(told, deadline)
		})
		w.pass(10 * time.Second)
		if len(told) != 3 || !slices.IsSorted(told) || told[0] <= first {
			w.Fatalf("after three renewals: told %v, at first %v", told, first)
		}
		if got, want := l.Remaining(), l.Deadline()-c.cfg.Clock(); got != want {
			w.Errorf("%v remain until a deadline in %v", got, want)
		}
		w.fail("mute")
		w.pass(5 * time.Second)
		if len(told) != 3 {
			w.Errorf("told %v while renewals fail", told)
		}
		w.fail()
		w.pass(2 * time.Second)
		n := len(told)
		if n < 4 {
			w.Fatalf("told %v, though renewals come through again", told)
		}
		stop()
		w.pass(10 * time.Second)
		if len(told) != n || l.Deadline() <= told[n-1] {
			w.Errorf("told %v after the stop, the deadline is %v", told, l.Deadline())
		}
	})
}

// On a quorum a long lease is renewed twice a minute, also beside a short one, whose renewals it could join much earlier.
func TestQuorumRenewsLongLeasesTwiceAMinute(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, _, closeAll := w.quorum(3)
		defer closeAll()
		long, short := w.lock(c, "long", time.Hour), w.lock(c, "short", 3*time.Second)
		w.pass(time.Second)
		renewals := 0
		stop := long.OnExtend(func(time.Duration) { renewals++ })
		w.pass(2 * time.Minute)
		stop()
		if renewals < 4 || renewals > 6 {
			w.Errorf("%d renewals in two minutes", renewals)
		}
		w.release(short)
		w.release(long)
	})
}
