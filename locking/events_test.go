package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// hearing has a client hear until the test's end; its events are read after synctest.Wait.
func hearing(w *wire, c *Client) (heard func() []lease.GrantEvent, stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var all []lease.GrantEvent
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.requests.Subscribe(ctx, func(n []lease.GrantEvent) { all = append(all, n...) })
	}()
	synctest.Wait()
	return func() []lease.GrantEvent { synctest.Wait(); return all }, func() { cancel(); <-over }
}

// A client that has heard of a grant prevents a second one: a server that forgets the grant, after its holder is
// gone, does not grant the tick again.
// Promise: P1
func TestEventOfAGrantIsRestored(t *testing.T) {
	inBubble(t, func(w *wire) {
		winner, closeWinner := w.client(Config{})
		hearer, closeHearer := w.client(Config{})
		defer closeWinner()
		defer closeHearer()
		w.release(w.lock(hearer, "warm", time.Minute)) // it knows the server's clock
		heard, stop := hearing(w, hearer)
		defer stop()
		for _, c := range []*Client{winner, hearer} { // a client does not remember messages about locks that it does not use
			c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "x", Permanent: true, Schedule: "s"}})
		}
		w.pass(2 * time.Second)
		tick := lease.Tick{At: time.Now().Truncate(time.Second), Previous: time.Now().Add(-time.Hour), Schedule: "s"}
		r := lease.Request{Lock: "x", Lease: time.Minute, Permanent: true, AnyLimit: true, Tick: &tick}
		a := winner.requests.Acquire(w.Context(), r)
		if a.Verdict != lease.Granted {
			w.Fatalf("%+v", a)
		}
		if err := winner.requests.Publish(w.Context(), []lease.Run{a.Run}, nil); err != nil {
			w.Fatal(err)
		}
		got := heard()
		if len(got) != 1 || got[0].Lock != "x" || !got[0].Tick.Equal(tick.At) || got[0].Until.Before(time.Now().Add(59*time.Second)) {
			w.Fatalf("heard %+v", got)
		}
		if err := winner.cfg.Redis.FlushAll(w.Context()).Err(); err != nil {
			w.Fatal(err)
		}
		if a := hearer.requests.Acquire(w.Context(), r); a.Verdict != lease.Closed {
			w.Errorf("after the loss: %q", a.Verdict)
		}
		w.pass(2 * time.Minute)
		if a := hearer.requests.Acquire(w.Context(), r); a.Verdict != lease.Decided {
			w.Errorf("when the lock is open again: %q", a.Verdict)
		}
	})
}

// A server that is away ends no subscription for good.
func TestHearAgainAfterAnOutage(t *testing.T) {
	for _, how := range []string{"deaf", "mute", "cut"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(w *wire) {
				teller, closeTeller := w.client(Config{})
				hearer, closeHearer := w.client(Config{})
				defer closeTeller()
				defer closeHearer()
				heard, stop := hearing(w, hearer)
				defer stop()
				if how == "cut" {
					w.cut(3)
					teller.requests.Acquire(w.Context(), lease.Request{Lock: "y"})
				} else {
					w.fail(how)
				}
				w.pass(time.Minute)
				w.fail()
				w.pass(time.Minute)
				l := w.lock(teller, "x", time.Minute)
				defer w.release(l)
				if err := teller.requests.Publish(w.Context(), []lease.Run{runOf(l)}, nil); err != nil {
					w.Fatal(err)
				}
				if n := len(heard()); n != 1 {
					w.Errorf("heard %d events", n)
				}
			})
		})
	}
}

// A message of another program in the channel is no event, and does no harm.
func TestStrangeEvents(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		heard, stop := hearing(w, c)
		defer stop()
		for _, s := range []string{"", "x", "{}", "null", "stop\tx", "stop\t\tr\n", "stop\tx\tr\ts\n", "x\t1\t2", "x\ta\tb\tc\td\te\tf\ttrue\to\t", "\t1\t2\t3\t4\t5\t6\ttrue\to\t\n", "x\t-1\t2\t3\t4\t5\t6\ttrue\to\t\n"} {
			if err := c.cfg.Redis.Publish(w.Context(), c.cfg.Prefix+"granted", s).Err(); err != nil {
				w.Fatal(err)
			}
		}
		if got := heard(); len(got) != 0 {
			w.Errorf("heard %+v", got)
		}
	})
}

// One message must not harm a lock for longer than a lease: a message that can't be true is not believed, and
// one about a lock that the client does not use is not remembered.
// Promise: P4, damage
func TestForgedEvents(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "x", Permanent: true, Schedule: "s"}})
		w.release(w.lock(c, "plain", time.Minute))
		heard, stop := hearing(w, c)
		defer stop()
		now, good := time.Now().UnixMicro(), int64(time.Minute/time.Microsecond)
		day := int64(MaxLease / time.Microsecond)
		for _, g := range []grantMessage{
			{floor: now, longest: 8e15}, {floor: 1<<53 - 1, longest: good}, {floor: now + 2*good, longest: good}, {floor: now, longest: day + 1},
			{floor: now, longest: good, low: now/1e6 + 3600}, {floor: now, longest: good, now: now + 2*good}, {floor: now, longest: good, until: now + 2*day},
			{floor: now, longest: good, ledger: "!9007199254740991,1,0,skipped,x"}, {floor: now, longest: good, ledger: "!x"}, {floor: now, longest: good, ledger: "1 2 odd 3"},
		} {
			g.lock, g.owner, g.tick, g.now, g.until = "x", "o", now/1e6, max(g.now, now), max(g.until, now+1)
			if err := c.cfg.Redis.Publish(w.Context(), c.cfg.Prefix+"granted", g.message()).Err(); err != nil {
				w.Fatal(err)
			}
		}
		if got := heard(); len(got) != 0 {
			w.Errorf("believed %+v", got)
		}
		if k, _ := c.observed.Last("x"); k.Floor > now || k.Longest > good || k.Paused != "" {
			w.Errorf("remembered %+v", k)
		}
		before := c.observed.Len()
		for i := range 3000 {
			g := grantMessage{lock: fmt.Sprint("invented-", i), owner: "o", now: now, floor: now, longest: good, permanent: true}
			if err := c.cfg.Redis.Publish(w.Context(), c.cfg.Prefix+"granted", g.message()).Err(); err != nil {
				w.Fatal(err)
			}
		}
		plain := grantMessage{lock: "plain", owner: "o", now: now, floor: now, longest: good, permanent: true}
		if err := c.cfg.Redis.Publish(w.Context(), c.cfg.Prefix+"granted", plain.message()).Err(); err != nil {
			w.Fatal(err)
		}
		heard()
		if k, _ := c.observed.Last("plain"); k.Permanent || c.observed.Len() != before {
			w.Errorf("%d locks, before %d; the plain one is permanent: %v", c.observed.Len(), before, k.Permanent)
		}
		if a := c.requests.Acquire(w.Context(), lease.Request{Lock: "x", Permanent: true, AnyLimit: true}); a.Verdict != lease.Granted {
			w.Errorf("%q, %v", a.Verdict, a.Err)
		} else {
			w.release(leaseOf(a.Run))
		}
	})
}

// A replica that may carry on a run hears that its holder has left it.
// Promise: P5
func TestHearsOfWhatIsLeft(t *testing.T) {
	inBubble(t, func(w *wire) {
		holder, closeHolder := w.client(Config{})
		hearer, closeHearer := w.client(Config{})
		defer closeHolder()
		defer closeHearer()
		heard, stop := hearing(w, hearer)
		defer stop()
		holder.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "x", Permanent: true, Schedule: "s"}})
		w.pass(2 * time.Second)
		tick := lease.Tick{At: time.Now().Truncate(time.Second), Previous: time.Now().Add(-time.Hour), Schedule: "s"}
		a := holder.requests.Acquire(w.Context(), lease.Request{Lock: "x", Lease: time.Minute, Permanent: true, AnyLimit: true, Trigger: "t", Tick: &tick})
		if a.Verdict != lease.Granted {
			w.Fatalf("%+v", a)
		}
		w.pass(time.Second)
		if err := a.Run.HandOver(w.Context(), 1); err != nil {
			w.Fatal(err)
		}
		if got := heard(); len(got) != 1 || !got[0].Tick.Equal(tick.At) || time.Until(got[0].Until).Abs() > time.Millisecond {
			w.Errorf("heard %+v", got)
		}
	})
}

// A lease that was given back is announced as ended, so that clients which believe its tick taken look again.
// Promise: P5
func TestUndoIsPublished(t *testing.T) {
	inBubble(t, func(w *wire) {
		winner, closeWinner := w.client(Config{})
		hearer, closeHearer := w.client(Config{})
		defer closeWinner()
		defer closeHearer()
		heard, stop := hearing(w, hearer)
		defer stop()
		winner.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "x", Permanent: true, Schedule: "s"}})
		w.pass(2 * time.Second)
		tick := lease.Tick{At: time.Now().Truncate(time.Second), Previous: time.Now().Add(-time.Hour), Schedule: "s"}
		a := winner.requests.Acquire(w.Context(), lease.Request{Lock: "x", Lease: time.Minute, Permanent: true, AnyLimit: true, Tick: &tick})
		if a.Verdict != lease.Granted {
			w.Fatalf("%+v", a)
		}
		if err := a.Run.Undo(w.Context()); err != nil {
			w.Fatal(err)
		}
		if err := winner.requests.Publish(w.Context(), []lease.Run{a.Run}, nil); err != nil {
			w.Fatal(err)
		}
		if got := heard(); len(got) != 1 || got[0].Until.After(time.Now()) || !got[0].Tick.Equal(tick.At) {
			w.Errorf("heard %+v", got)
		}
	})
}

// grantMessage is a message about a grant, or a pause, as package single publishes it.
type grantMessage struct {
	lock, owner, ledger      string
	tick, until              int64
	now, floor, longest, low int64
	permanent                bool
}

func (g grantMessage) message() string {
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d\t%d\t%t\t%s\t%s\n", g.lock, g.tick, g.until, g.now, g.floor, g.longest, g.low, g.permanent, g.owner, g.ledger)
}

// told is the list of the hooks' calls.
type told struct {
	wire *wire

	mu    sync.Mutex
	lines []string
}

func (t *told) hooks() Hooks {
	note := func(format string, args ...any) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.lines = append(t.lines, fmt.Sprintf(format, args...))
	}
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
	return Hooks{
		Waited:    func(lock string, wait time.Duration) { note("%s waited %v", lock, round(wait)) },
		Contended: func(lock, holder string) { note("%s contended by %s", lock, holder) },
		Renewed: func(lock string, left, length time.Duration) {
			note("%s renewed with %v of %v left", lock, round(left), length)
		},
		Held: func(lock string, held time.Duration) { note("%s held %v", lock, round(held)) },
		Lost: func(lock string, length time.Duration, cause error) {
			note("%s lost of %v: %v", lock, length, errors.Is(cause, ErrLost))
		},
	}
}

// wants fails the test unless exactly that was told since the last call, in any order.
func (t *told) wants(want ...string) {
	t.wire.Helper()
	synctest.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.lines)
	slices.Sort(want)
	if !slices.Equal(t.lines, want) {
		t.wire.Errorf("told: %q\nwant: %q", t.lines, want)
	}
	t.lines = nil
}

// hooked returns a client whose hooks are listened to, and another.
func hooked(w *wire) (c, other *Client, t *told, closeAll func()) {
	t = &told{wire: w}
	c, closeOne := w.client(Config{Hooks: t.hooks(), Owner: "me"})
	other, closeOther := w.client(Config{Owner: "other"})
	return c, other, t, func() { closeOne(); closeOther() }
}

func TestHooksOfALockThatNobodyElseWants(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, _, told, closeAll := hooked(w)
		defer closeAll()
		l, err := c.Mutex("x", WithLease(30*time.Second)).Lock(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		told.wants("x waited 0s")
		w.pass(15 * time.Second)
		told.wants("x renewed with 19.7s of 30s left")
		w.release(l)
		told.wants("x held 15s")
		l, _, err = c.Mutex("x").TryLock(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if err := runOf(l).Undo(w.Context()); err != nil {
			w.Fatal(err)
		}
		told.wants("x held 0s")
	})
}

func TestHooksOfALockThatAnotherHolds(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, other, told, closeAll := hooked(w)
		defer closeAll()
		held := w.lock(other, "{s}:1", time.Minute)
		for range 2 {
			if _, ok, err := c.Mutex("{s}:1").TryLock(w.Context()); ok || err != nil {
				w.Fatal(ok, err)
			}
		}
		told.wants("{s}:1 contended by other", "{s}:1 contended by other")
		if _, ok, err := c.MultiLock("{s}:1", "{s}:2").TryLock(w.Context()); ok || err != nil {
			w.Fatal(ok, err)
		}
		told.wants("{s}:1 contended by other")
		time.AfterFunc(10*time.Second, func() { w.release(held) })
		l, err := c.Mutex("{s}:1").Lock(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		told.wants("{s}:1 contended by other", "{s}:1 waited 10s")
		w.release(l)
		told.wants("{s}:1 held 0s")
	})
}

func TestHooksOfASetThatWaits(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, other, told, closeAll := hooked(w)
		defer closeAll()
		w.lock(other, "{s}:2", 1500*time.Millisecond)
		if err := other.Close(); err != nil {
			w.Fatal(err)
		}
		leases, err := pair(c, time.Minute).Lock(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		told.wants("{s}:2 contended by other", "{s}:1 waited 1.5s", "{s}:2 waited 1.5s")
		if err := leases.Release(w.Context()); err != nil {
			w.Fatal(err)
		}
		told.wants("{s}:1 held 0s", "{s}:2 held 0s")
	})
}

func TestHooksOfALeaseThatIsLost(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, _, told, closeAll := hooked(w)
		defer closeAll()
		l := w.lock(c, "x", 3*time.Second)
		w.fail("mute")
		w.pass(10 * time.Second)
		told.wants("x lost of 3s: true", "x held 3s")
		w.fail()
		_ = l.Release(w.Context())
		told.wants()
		w.lock(c, "closed", time.Minute)
		closeAll()
		told.wants("closed held 0s")
	})
}

// A hook may call back, since nothing is locked.
func TestHooksMayUseTheClient(t *testing.T) {
	inBubble(t, func(w *wire) {
		var c *Client
		var l *Lease
		look := func() {
			c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "x"}})
			c.requests.EstimatedTime()
			if l != nil {
				_ = l.Remaining()
			}
		}
		hooks := Hooks{
			Waited:    func(string, time.Duration) { look() },
			Contended: func(string, string) { look() },
			Renewed:   func(string, time.Duration, time.Duration) { _ = l.Remaining() },
			Held:      func(string, time.Duration) { _ = l.Remaining() },
			Lost:      func(string, time.Duration, error) { look() },
		}
		c, closeAll := w.client(Config{Hooks: hooks})
		defer closeAll()
		l = w.lock(c, "x", 3*time.Second)
		if _, ok, err := c.Mutex("x").TryLock(w.Context()); ok || err != nil {
			w.Error(ok, err)
		}
		w.pass(5 * time.Second)
		w.release(l)
		if again, err := c.Mutex("x").Lock(w.Context()); err != nil {
			w.Error(err)
		} else {
			w.release(again)
		}
	})
}
