package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// locksAll locks a set.
func (w *wire) locksAll(s *MultiLock) *LeaseSet {
	w.Helper()
	leases, ok, err := s.TryLock(w.Context())
	if err != nil || !ok {
		w.Fatalf("granted: %v, %v", ok, err)
	}
	return leases
}

// held are how many rows of two locks the server has.
func (w *wire) held() int { w.Helper(); return len(w.rows("{s}:1")) + len(w.rows("{s}:2")) }

func pair(c *Client, lease time.Duration) *MultiLock {
	return c.MultiLock("{s}:2", "{s}:1").With(WithLease(lease))
}

func TestSetsThatCannotBe(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		var many []string
		for i := range mostLocks + 1 {
			many = append(many, fmt.Sprintf("{s}:%d", i))
		}
		for _, tc := range []struct {
			set  *MultiLock
			want string
		}{
			{c.MultiLock(), "lock nothing: 0 locks at once"},
			{c.MultiLock(many...), "101 locks at once"},
			{c.MultiLock("a", "b"), `as in "{orders}:1"`},
			{c.MultiLock("{a}:1", "{b}:1"), `as in "{orders}:1"`},
			{c.MultiLock("{a}:1", "a"), `as in "{orders}:1"`},
			{c.MultiLock("{a}:1", "{a}:2", "{a}:1"), `"{a}:1" is named twice`},
			{c.MultiLock("{a}:1", "{a}:queue"), "can't end with :queue"},
			{c.MultiLock("{a}:1", ""), "name is empty"},
			{c.MultiLock("a").With(WithLease(time.Millisecond)), "from 10ms"},
			{c.MultiLock("a").With(WithAnyLimit()), "not any limit"},
		} {
			_, ok, err := tc.set.TryLock(w.Context())
			_, err2 := tc.set.Lock(w.Context())
			if ok || err == nil || err2 == nil || !strings.Contains(err.Error(), tc.want) || err.Error() != err2.Error() {
				w.Errorf("want %q: %v, %v", tc.want, err, err2)
			}
			if errors.Is(err, ErrUnknown) {
				w.Errorf("%v: nothing was asked", err)
			}
		}
		if len(w.sent()) != 0 {
			w.Error("the server was asked")
		}
		_ = w.locksAll(c.MultiLock("one without braces").With(WithDelay(time.Second)))
	})
}

func TestLostReplyForASetIsResolvedByTheSameIDs(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		w.cut(2)
		leases := w.locksAll(pair(c, time.Minute))
		for name, token := range leases.Tokens() {
			if rows := w.rows(name); len(rows) != 1 || rows[0].Token != token || rows[0].ID != leases.Lease(name).ID() {
				w.Errorf("%s: rows %+v, token %d", name, rows, token)
			}
		}
		if err := leases.Release(w.Context()); err != nil || w.held() != 0 {
			w.Errorf("%v, %d held", err, w.held())
		}
	})
}

func TestSetThatCannotTellLeavesNoGhost(t *testing.T) {
	for _, waits := range []bool{false, true} {
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{})
			defer closeAll()
			w.release(w.lock(c, "warm", time.Minute))
			w.fail("deaf")
			ctx, cancel := context.WithTimeout(w.Context(), 3*time.Second)
			defer cancel()
			set := pair(c, 10*time.Minute)
			leases, ok, err := set.TryLock(ctx)
			if waits {
				leases, err = set.Lock(ctx)
			}
			if leases != nil || ok || !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				w.Fatalf("%v, %v, %v", leases, ok, err)
			}
			w.pass(10 * time.Second)
			w.fail()
			w.pass(5 * time.Second)
			if n := w.held(); n != 0 {
				w.Errorf("ghosts hold %d locks", n)
			}
		})
	}
}

// A set whose refusal was not heard asks with new ids, since the old ones are dead.
func TestUnheardRefusalOfASetIsAskedAnew(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		other, closeOther := w.beside().client(Config{})
		defer closeOther()
		held := w.lock(other, "{s}:2", time.Minute)
		w.release(w.lock(c, "warm", time.Minute))
		w.cut(1)
		time.AfterFunc(time.Millisecond, func() { w.release(held) })
		w.locksAll(pair(c, time.Minute))
		if w.held() != 2 {
			w.Errorf("%d held", w.held())
		}
	})
}

func TestSetIsRenewedAndEndsWithTheFirstThatIsLost(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		leases := w.locksAll(pair(c, 3*time.Second))
		w.pass(10 * time.Second)
		if leases.Context().Err() != nil || w.held() != 2 || leases.Remaining() <= time.Second || closed(leases.Endangered()) {
			w.Fatalf("%v, %d held, warned: %v", context.Cause(leases.Context()), w.held(), closed(leases.Endangered()))
		}
		if err := c.cfg.Redis.HDel(w.Context(), c.lockKey("{s}:2"), "r0", "e0").Err(); err != nil {
			w.Fatal(err)
		}
		w.pass(2 * time.Second)
		cause := context.Cause(leases.Context())
		if !errors.Is(cause, ErrLost) || !strings.Contains(cause.Error(), "{s}:2") || leases.Lease("{s}:1").Context().Err() != nil {
			w.Errorf("%v", cause)
		}
		if err := leases.Release(w.Context()); !errors.Is(err, ErrLost) || w.held() != 0 {
			w.Errorf("%v, %d held", err, w.held())
		}
	})
}

func TestSetWarnsWithTheFirstThatIsInDanger(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		leases := w.locksAll(pair(c, 3*time.Second))
		w.fail("mute")
		warning := lease.HoldFor(3*time.Second) - time.Second
		w.pass(warning - time.Millisecond)
		if closed(leases.Endangered()) {
			w.Error("warned too soon")
		}
		w.pass(time.Millisecond)
		if !closed(leases.Endangered()) || leases.Context().Err() != nil {
			w.Errorf("a third before the end: warned %v, context %v", closed(leases.Endangered()), leases.Context().Err())
		}
	})
}

func TestSetCountsOnlyWhenReplicasHaveIt(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.acked()
		defer closeAll()
		ctx, cancel := context.WithTimeout(w.Context(), 3*time.Second)
		defer cancel()
		if leases, ok, err := pair(c, time.Minute).TryLock(ctx); leases != nil || ok || !errors.Is(err, ErrUnknown) {
			w.Fatalf("%v, %v, %v", leases, ok, err)
		}
		w.pass(5 * time.Second)
		if n := w.held(); n != 0 {
			w.Fatalf("%d are held that no replica has", n)
		}
		if know := c.observed.Of("{s}:1", c.cfg.Clock, c.cfg.Idle); know.Floor != 0 {
			w.Errorf("learnt what a failover may undo: %+v", know)
		}
		time.AfterFunc(100*time.Millisecond, func() { w.replicas(1) }) // TryLock asks again for a second, at pauses that double
		w.Waits()
		leases := w.locksAll(pair(c, time.Minute))
		if waits := w.Waits(); waits == 0 || w.held() != 2 {
			w.Errorf("%d held, %d waits", w.held(), waits)
		}
		for name, token := range leases.Tokens() {
			if know := c.observed.Of(name, c.cfg.Clock, c.cfg.Idle); know.Floor != int64(token) {
				w.Errorf("%s: token %d, learnt %+v", name, token, know)
			}
		}
	})
}

// A release says which leases were lost before, also where the server has still had their rows.
func TestReleaseOfASetSaysWhatWasLost(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		short, long := w.lock(c, "{s}:1", 3*time.Second), w.lock(c, "{s}:2", time.Minute)
		set := LeaseSetOf(short, long)
		w.fail("mute")
		w.pass(4 * time.Second)
		w.fail()
		if cause := context.Cause(set.Context()); !errors.Is(cause, ErrLost) { // the server has both rows still: no look has come yet
			w.Fatal(cause)
		}
		err := set.Release(w.Context())
		if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), `"{s}:1"`) || strings.Contains(err.Error(), `"{s}:2"`) || strings.Count(err.Error(), ErrLost.Error()) != 1 {
			w.Errorf("released: %v", err)
		}
		if n := w.held(); n != 0 {
			w.Errorf("%d held", n)
		}
		if err := set.Release(w.Context()); err != nil {
			w.Errorf("released again: %v", err)
		}
	})
}

func TestWaitingForASetEndsWithItsContext(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		held := w.lock(c, "{s}:1", 10*time.Second)
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		w.sent()
		if leases, err := pair(c, time.Minute).Lock(ctx); leases != nil || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknown) {
			w.Errorf("%v, %v", leases, err)
		}
		if n := len(w.sent()); n > 200 {
			w.Errorf("%d requests in a minute", n)
		}
		w.pass(time.Second)
		if n := w.held(); n != 1 {
			w.Errorf("%d held", n)
		}
		w.release(held)
	})
}

// It looks when the lease that is in its way runs out.
func TestWaitingSetTakesOverWhatRanOut(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		other, closeOther := w.client(Config{})
		w.lock(other, "{s}:2", 3*time.Second)
		closeOther()
		began := time.Now()
		if _, err := pair(c, time.Minute).Lock(w.Context()); err != nil {
			w.Fatal(err)
		}
		if took := time.Since(began); took > 3100*time.Millisecond {
			w.Errorf("it took %v", took)
		}
	})
}

func TestSetsOfAClosedClient(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		leases := w.locksAll(pair(c, time.Minute))
		closeAll()
		w.pass(time.Millisecond)
		if cause := context.Cause(leases.Context()); !errors.Is(cause, ErrClosed) {
			w.Error(cause)
		}
		_, ok, err := pair(c, time.Minute).TryLock(w.Context())
		_, err2 := pair(c, time.Minute).Lock(w.Context())
		if ok || !errors.Is(err, ErrClosed) || !errors.Is(err2, ErrClosed) {
			w.Errorf("%v, %v", err, err2)
		}
	})
}

// A client learns from the first refusal that the server's clock is ahead of its estimate.
func TestSetLearnsTheTimeOfTheServer(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		set := c.MultiLock("{a}:1", "{a}:2")
		first, _, err := set.TryLock(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if err := first.Release(w.Context()); err != nil {
			w.Fatal(err)
		}
		step(c, -10*time.Second) // as if it had been so before the server's clock was stepped ahead
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
		defer cancel()
		if _, ok, err := set.TryLock(ctx); !ok {
			w.Error(err)
		}
	})
}

// The first name without a tag is told as that, beside another one.
func TestSetSaysWhichNamesHaveNoTagInCommon(t *testing.T) {
	for _, names := range [][]string{{"orders", "stock"}, {"orders", "{s}:1"}, {"{o}:1", "{s}:1"}} {
		err := checkNames(names)
		if err == nil || !strings.Contains(err.Error(), strconv.Quote(names[0])+" and "+strconv.Quote(names[1])) {
			t.Errorf("%q: %v", names, err)
		}
	}
}

// A set that rests between two tries hears at once that the client closes.
func TestSetThatRestsHearsOfClose(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		other, closeOther := w.beside().client(Config{})
		defer closeOther()
		held := w.lock(other, "x", time.Minute)
		defer w.release(held)
		got := make(chan error)
		go func() {
			_, err := c.MultiLock("x").Lock(w.Context())
			got <- err
		}()
		w.pass(20 * time.Second)
		began := w.clock()
		_ = c.Close()
		if err := <-got; !errors.Is(err, ErrClosed) {
			w.Error(err)
		}
		if took := w.clock() - began; took > 0 {
			w.Errorf("%v later", took)
		}
	})
}

// A set does not ask again where the server refuses.
func TestSetReportsARefusal(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		r := w.redis(-1)
		defer r.Close()
		r.LPush(w.Context(), "locking:{x}", "other")
		ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
		defer cancel()
		began := w.clock()
		_, err := c.MultiLock("x").Lock(ctx)
		if took := w.clock() - began; took > time.Minute || !errors.Is(err, ErrRefused) {
			w.Errorf("after %v: %v", took, err)
		}
	})
}

// Work that needs two leases may rely on the shorter of both, whichever that is at the time.
// Promise: P3
func TestTogetherIsTheShorterOfBoth(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		long := w.lock(c, "long", time.Minute)
		w.pass(time.Second)
		short := w.lock(c, "short", 9*time.Second)
		both := LeaseSetOf(long, short)
		if both.Length() != 9*time.Second || both.Deadline() != short.Deadline() || both.Remaining() != short.Remaining() {
			w.Errorf("length %v, deadline %v, remaining %v", both.Length(), both.Deadline(), both.Remaining())
		}
		var mu sync.Mutex
		var all []time.Duration
		stop := both.OnExtend(func(deadline time.Duration) { mu.Lock(); defer mu.Unlock(); all = append(all, deadline) })
		heard := func() []time.Duration { mu.Lock(); defer mu.Unlock(); return slices.Clone(all) }
		w.pass(7 * time.Second)
		told := heard()
		if len(told) != 2 || told[0] >= told[1] || told[1] != short.Deadline() {
			w.Errorf("told %v, want both renewals of the short one, up to %v", told, short.Deadline())
		}
		w.pass(30 * time.Second) // the long one is renewed, too, which moves nothing
		told = heard()
		for i := 1; i < len(told); i++ {
			if told[i] <= told[i-1] {
				w.Errorf("told %v after %v", told[i], told[i-1])
			}
		}
		stop()
		n := len(heard())
		w.fail("mute")
		w.pass(8 * time.Second)
		select {
		case <-both.Endangered():
		default:
			w.Error("nobody was warned")
		}
		w.pass(time.Second)
		synctest.Wait()
		if cause := both.Context().Err(); cause == nil || long.Context().Err() != nil || len(heard()) != n {
			w.Errorf("the end of one is not that of both: %v", cause)
		}
		w.fail()
	})
}

func TestTogetherEndsWithARelease(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		a, b := w.lock(c, "a", time.Minute), w.lock(c, "b", time.Minute)
		both := LeaseSetOf(a, b)
		w.release(b)
		<-both.Context().Done()
		if cause := context.Cause(both.Context()); !errors.Is(cause, ErrReleased) || a.Context().Err() != nil {
			w.Errorf("ended with %v", cause)
		}
		w.release(a)
	})
}

// A lease that was lost before it was confirmed is waited for again.
func TestAcquireConfirmedHasTheWholeLength(t *testing.T) {
	inBubble(t, func(w *wire) {
		holder, closeHolder := w.client(Config{})
		defer closeHolder()
		held := w.lock(holder, "x", time.Minute)
		c, closeAll := w.client(Config{})
		defer closeAll()
		got := make(chan *Lease)
		go func() {
			l, err := c.Semaphore("x", 1, WithLease(time.Minute)).AcquireConfirmed(w.Context())
			if err != nil {
				w.Error(err)
			}
			got <- l
		}()
		w.pass(time.Second)
		w.release(held)
		l := <-got
		if left := l.Remaining(); left < 50*time.Second {
			w.Errorf("it has %v", left)
		}
		w.release(l)
	})
}

// A lease that is lost before it was confirmed is in no other waiter's way, though the server got renewals whose
// replies were lost.
// Promise: P9
func TestAcquireConfirmedDoesNotWaitForItself(t *testing.T) {
	inBubble(t, func(w *wire) {
		holder, closeHolder := w.beside().client(Config{})
		defer closeHolder()
		held := w.lock(holder, "x", time.Minute)
		var waited []time.Duration
		c, closeAll := w.client(Config{Hooks: Hooks{Waited: func(string, time.Duration) {
			if waited = append(waited, w.clock()); len(waited) == 1 {
				w.fail("deaf")
			}
		}}})
		defer closeAll()
		got := make(chan *Lease)
		go func() {
			l, err := c.Semaphore("x", 1, WithLease(time.Minute)).AcquireConfirmed(w.Context())
			if err != nil {
				w.Error(err)
			}
			got <- l
		}()
		w.pass(25 * time.Second) // the server learns to renew
		w.release(held)
		w.pass(3 * time.Second)
		w.fail()
		l := <-got
		if len(waited) != 2 || waited[1]-waited[0] > 20*time.Second {
			w.Errorf("it was granted after %v", waited)
		}
		w.release(l)
	})
}
