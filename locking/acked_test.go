package locking

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	redisstore "github.com/cronclave/cronclave/internal/lease/redis"

	"github.com/cronclave/cronclave/internal/lease"
)

// acked wants one replica to have each grant.
func (w *wire) acked() (c *Client, closeAll func()) {
	w.Helper()
	return w.client(Config{AckedReplicas: 1})
}

// wants fails the test unless the verdict is the one wanted; Unknown must be worth asking again.
func (w *wire) wants(a lease.Result, want lease.Verdict) lease.Result {
	w.Helper()
	if a.Verdict != want || want == lease.Unknown && !errors.Is(a.Err, ErrUnknown) {
		w.Fatalf("verdict %q (outcome %q), %v; want %q", a.Verdict, a.Outcome, a.Err, want)
	}
	return a
}

// tickOf is a tick that is due now, of a schedule that the lock knows since a minute ago.
func (w *wire) tickOf(c *Client, length, patience time.Duration) lease.Request {
	w.Helper()
	w.replicas(1)
	c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "x", Permanent: true, Schedule: "s"}})
	w.pass(time.Minute)
	now := time.Now().Truncate(time.Second)
	return lease.Request{Lock: "x", ID: "one", Permanent: true, Lease: length, Trigger: "schedule", Tick: &lease.Tick{
		At: now, Previous: now.Add(-time.Second), Schedule: "s", Deadline: now.Add(patience), IfLate: "missed"}}
}

// TestGrantCountsOnlyWhenReplicasHaveIt counts a grant only when Redis replicas have acknowledged it.
// Promise: P1, P3
func TestGrantCountsOnlyWhenReplicasHaveIt(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.acked()
		defer closeAll()
		r := lease.Request{Lock: "x", ID: "one", Lease: time.Minute}
		a := w.wants(c.requests.Acquire(w.Context(), r), lease.Unknown)
		if a.Run != nil || a.ID != "one" || len(w.rows("x")) != 1 {
			w.Fatalf("%+v, rows %+v", a, w.rows("x"))
		}
		w.replicas(1)
		l := leaseOf(w.wants(c.requests.Acquire(w.Context(), r), lease.Granted).Run)
		if rows := w.rows("x"); rows[0].Token != l.Token() {
			w.Errorf("rows %+v, token %d", rows, l.Token())
		}
		w.replicas(0) // a grant that has counted once goes on counting
		if again := w.wants(c.requests.Acquire(w.Context(), r), lease.Granted); leaseOf(again.Run) != l {
			w.Error("a second lease of the same grant")
		}
		w.Waits()
		w.release(l)
		if w.Waits() != 0 {
			w.Error("a release waits for replicas")
		}
	})
}

// A release needs no replica, so it does not wait with claims that do: those under way, and those that came with it.
func TestReleaseDoesNotWaitWithClaims(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.acked()
		defer closeAll()
		w.replicas(1)
		l := w.lock(c, "x", time.Minute)
		const lag = 80 * time.Millisecond
		w.Lag(lag)
		var claims sync.WaitGroup
		for _, lock := range []string{"under way", "waiting"} {
			claims.Go(func() {
				if a := c.requests.Acquire(w.Context(), lease.Request{Lock: lock, Lease: time.Minute}); a.Verdict != lease.Granted {
					w.Errorf("%s: %q, %v", lock, a.Verdict, a.Err)
				}
			})
			synctest.Wait()
		}
		start := time.Now()
		w.release(l)
		if took := time.Since(start); took >= lag {
			w.Errorf("it took %v", took)
		}
		claims.Wait()
	})
}

// TestRenewalExtendsOnlyWhatReplicasHave extends a lease only by renewals that Redis replicas have acknowledged.
// Promise: P3
func TestRenewalExtendsOnlyWhatReplicasHave(t *testing.T) {
	for _, back := range []bool{false, true} {
		inBubble(t, func(w *wire) {
			c, closeAll := w.acked()
			defer closeAll()
			const lease = 3 * time.Second
			w.replicas(1)
			l := w.lock(c, "x", lease)
			w.pass(5 * time.Second)
			if l.Context().Err() != nil {
				w.Fatal("acknowledged renewals did not keep it")
			}
			w.replicas(0)
			began := time.Now()
			if back {
				time.AfterFunc(lease/2, func() { w.replicas(1) })
			}
			w.pass(lease)
			if alive := l.Context().Err() == nil; alive != back {
				w.Errorf("replicas back in time: %v, but alive: %v", back, alive)
			}
			if rows := w.rows("x"); len(rows) != 1 || !rows[0].Expires.After(began.Add(lease)) {
				w.Errorf("the server has not renewed it: %+v", rows)
			}
			if !back && !errors.Is(context.Cause(l.Context()), ErrLost) {
				w.Error(context.Cause(l.Context()))
			}
		})
	}
}

// A tick is asked for again until its deadline, at pauses that may be longer than its lease.
func TestUnacknowledgedTickWaitsForReplicas(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.acked()
		defer closeAll()
		r := w.tickOf(c, time.Second, time.Minute)
		w.replicas(0)
		w.wants(c.requests.Acquire(w.Context(), r), lease.Unknown)
		w.pass(500 * time.Millisecond)
		for range 10 {
			w.wants(c.requests.Acquire(w.Context(), r), lease.Unknown)
			w.pass(3 * time.Second)
			if n := len(w.rows("x")); n != 1 { // else others could mourn it
				w.Fatalf("%d rows while replicas are waited for", n)
			}
		}
		w.replicas(1)
		a := w.wants(c.requests.Acquire(w.Context(), r), lease.Granted)
		if a.Orphans != 0 || a.Run.Attempt() != 1 || a.Run.Remaining() > time.Second {
			w.Errorf("%d orphans, attempt %d, %v remain", a.Orphans, a.Run.Attempt(), a.Run.Remaining())
		}
	})
}

func TestUnacknowledgedTickIsSettledAfterItsDeadline(t *testing.T) {
	for _, after := range []int{0, 1, 5} { // questions past the deadline before replicas are back
		inBubble(t, func(w *wire) {
			c, closeAll := w.acked()
			defer closeAll()
			r := w.tickOf(c, 30*time.Second, 4*time.Second)
			w.replicas(0)
			w.wants(c.requests.Acquire(w.Context(), r), lease.Unknown)
			w.pass(5 * time.Second)
			for range after {
				w.wants(c.requests.Acquire(w.Context(), r), lease.Unknown)
				w.pass(2 * time.Second)
			}
			w.replicas(1)
			if after == 0 { // the claimant that gets it looks at the clock, and gives it back
				w.wants(c.requests.Acquire(w.Context(), r), lease.Granted)
				return
			}
			if a := w.wants(c.requests.Acquire(w.Context(), r), lease.Decided); a.Outcome != "missed" || a.ID != r.ID {
				w.Errorf("%+v", a)
			}
			if len(w.rows("x")) != 0 {
				w.Errorf("rows %+v", w.rows("x"))
			}
		})
	}
}

func TestRefusalsCountOnlyWhenReplicasHaveThem(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.acked()
		defer closeAll()
		other, closeOther := w.acked()
		defer closeOther()
		r := w.tickOf(c, time.Minute, time.Hour)
		w.wants(c.requests.Acquire(w.Context(), r), lease.Granted)
		r.ID = "other"
		w.replicas(0)
		w.wants(other.requests.Acquire(w.Context(), r), lease.Unknown)
		plain := lease.Request{Lock: "y", Lease: time.Minute}
		w.wants(c.requests.Acquire(w.Context(), plain), lease.Unknown)
		w.wants(other.requests.Acquire(w.Context(), plain), lease.Held) // which decides nothing
		w.replicas(1)
		w.wants(other.requests.Acquire(w.Context(), r), lease.Decided)
	})
}

// A client does not remember a reply that replicas have not acknowledged. The new master never had that grant,
// so a client that announced it would take the tick from all others.
// Promise: P5
func TestUnacknowledgedReplyTeachesNothing(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.acked()
		defer closeAll()
		other, closeOther := w.acked()
		defer closeOther()
		r := w.tickOf(c, time.Minute, time.Hour)
		s := c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "x", Permanent: true}})[0]
		w.replicas(0)
		w.wants(c.requests.Acquire(w.Context(), r), lease.Unknown)
		theirs := r
		theirs.ID = "theirs"
		w.wants(other.requests.Acquire(w.Context(), theirs), lease.Unknown)
		// A failover to a replica that has all but the grant.
		keys := redisstore.LockKeys(c.lockKey("x"), "")
		if err := errors.Join(c.cfg.Redis.Del(w.Context(), keys[:3]...).Err(), c.cfg.Redis.HSet(w.Context(), keys[0],
			"digest", "s", "since", s.Now.Add(-time.Minute).UnixMicro(), "low", s.Decided.Unix()).Err()); err != nil {
			w.Fatal(err)
		}
		w.replicas(1)
		w.wants(other.requests.Acquire(w.Context(), theirs), lease.Granted)
		w.wants(c.requests.Acquire(w.Context(), r), lease.Decided)
	})
}

func TestPlainLockThatIsNotAcknowledgedIsGivenBack(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.acked()
		defer closeAll()
		ctx, cancel := context.WithTimeout(w.Context(), 3*time.Second)
		defer cancel()
		if l, ok, err := c.Mutex("x").TryLock(ctx); l != nil || ok || !errors.Is(err, ErrUnknown) {
			w.Fatalf("%v %v %v", l, ok, err)
		}
		w.pass(time.Second)
		if len(w.rows("x")) != 0 {
			w.Errorf("rows %+v", w.rows("x"))
		}
		time.AfterFunc(150*time.Millisecond, func() { w.replicas(1) })
		if _, ok, err := c.Mutex("x").TryLock(w.Context()); !ok {
			w.Errorf("replicas came back: %v", err)
		}
	})
}

// A waiter has its row when replicas have the grant, and not when only the server has written it. A grant that
// they do not get is not kept.
// Promise: P3
func TestWaiterHasOnlyWhatReplicasHave(t *testing.T) {
	inBubble(t, func(w *wire) {
		holder, closeHolder := w.acked()
		defer closeHolder()
		c, closeAll := w.acked()
		defer closeAll()
		w.replicas(1)
		held := w.lock(holder, "x", time.Minute)
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		first, second := w.linesUp(w.Context(), c), w.linesUp(ctx, c)
		w.pass(5 * time.Second)
		w.replicas(0)
		w.release(held)
		w.pass(time.Minute)
		if rows := w.rows("x"); len(first) != 0 || len(second) != 0 || len(rows) != 1 {
			w.Fatalf("without replicas %d and %d waiters have ended; rows %+v", len(first), len(second), rows)
		}
		cancel()
		w.pass(5 * time.Second)
		if a := <-second; a.lease != nil || !errors.Is(a.err, context.Canceled) {
			w.Errorf("cancelled: %+v", a)
		}
		w.replicas(1)
		w.pass(5 * time.Second)
		a := <-first
		if rows := w.rows("x"); a.err != nil || len(rows) != 1 || rows[0].Token != a.lease.Token() || a.lease.Remaining() < 10*time.Second {
			w.Fatalf("with a replica: %+v, rows %+v", a, rows)
		}
		w.release(a.lease)
		if rows := w.rows("x"); len(rows) != 0 {
			w.Errorf("left behind: %+v", rows)
		}
	})
}

type waitEnd struct {
	lease *Lease
	err   error
}

// linesUp waits for the mutex x.
func (w *wire) linesUp(ctx context.Context, c *Client) <-chan waitEnd {
	end := make(chan waitEnd, 1)
	go func() {
		l, err := c.Mutex("x").Lock(ctx)
		end <- waitEnd{l, err}
	}()
	synctest.Wait()
	return end
}

// A grant of a batch of which another is settled first, which takes two round trips more, is not handed out after its end.
func TestGrantBesideASettlementIsNotHandedOutTooLate(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{AckedReplicas: 1, Timeout: 2 * time.Second})
		defer closeAll()
		r := w.tickOf(c, 30*time.Second, time.Second)
		l := leaseOf(w.wants(c.requests.Acquire(w.Context(), r), lease.Granted).Run)
		if err := runOf(l).Undo(w.Context()); err != nil {
			w.Fatal(err)
		}
		c.requests.AcquireAll(w.Context(), []lease.Request{{Lock: "warm1"}, {Lock: "warm2"}})
		w.pass(1500 * time.Millisecond)                                                       // past the tick's deadline; its id has a tombstone
		c.requests.AcquireAll(w.Context(), []lease.Request{{Lock: "warm3"}, {Lock: "warm4"}}) // the server knows the script for two
		w.slow(210 * time.Millisecond)
		defer w.fail()
		answers := c.requests.AcquireAll(w.Context(), []lease.Request{r, {Lock: "y", Lease: 800 * time.Millisecond}})
		w.wants(answers[0], lease.Settled)
		if a := answers[1]; a.Verdict == lease.Granted && leaseOf(a.Run).Remaining() <= 0 {
			w.Errorf("handed out %v after its deadline; context: %v", -leaseOf(a.Run).Remaining(), leaseOf(a.Run).Context().Err())
		}
	})
}
