package locking

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/testtier"
)

func TestKeeperRenewsInBatchesAThirdOfTheWay(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		const leases = 1200
		requests := make([]lease.Request, leases)
		for i := range requests {
			requests[i] = lease.Request{Lock: fmt.Sprint(i), Lease: 30 * time.Second}
		}
		for _, a := range c.requests.AcquireAll(w.Context(), requests) {
			if a.Verdict != lease.Granted {
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
		c.requests.AcquireAll(w.Context(), []lease.Request{{Lock: "warm1"}, {Lock: "warm2"}})
		w.slow(800 * time.Millisecond)
		defer w.fail()
		const many = 51 // slots of a request that goes by itself
		answers := c.requests.AcquireAll(w.Context(), []lease.Request{{Lock: "x", Lease: 1500 * time.Millisecond}, {Lock: "y", Lease: time.Minute}, {Lock: "z", Slots: many}})
		for i, verdict := range []lease.Verdict{lease.Unknown, lease.Granted, lease.Granted} {
			if a := answers[i]; a.Verdict != verdict || (verdict == lease.Unknown) != errors.Is(a.Err, ErrUnknown) {
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
			renewed := w.rows("x")[0].Expires
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
		if rows := w.rows("x"); len(rows) != 1 || time.Until(rows[0].Expires) > time.Second {
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
		r := lease.Request{Lease: time.Minute}
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
		r := lease.Request{Lock: "x", ID: "same", Lease: time.Hour}
		first := leaseOf(c.requests.Acquire(w.Context(), r).Run)
		if second := leaseOf(c.requests.Acquire(w.Context(), r).Run); second != first {
			w.Fatal("two leases of one grant")
		}
		if err := c.cfg.Redis.FlushAll(w.Context()).Err(); err != nil {
			w.Fatal(err)
		}
		w.pass(time.Second)
		c.observed.Delete("x")
		second := leaseOf(c.requests.Acquire(w.Context(), r).Run)
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

// latency is a network on which scripts need a while.
type latency struct{ d time.Duration }

func (latency) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h latency) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.pass(cmd)
		return next(ctx, cmd)
	}
}
func (h latency) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.pass(cmds[0])
		return next(ctx, cmds)
	}
}

// pass leaves alone what go-redis does under a lock, where fake time would stand still.
func (h latency) pass(cmd redis.Cmder) {
	if cmd.Name() == "evalsha" {
		<-time.After(h.d)
	}
}

// Close waits until a first try under way has taken back its grant.
// Promise: P9
func TestCloseDuringTheFirstTryLeavesNoGhost(t *testing.T) {
	for name, try := range map[string]func(ctx context.Context, c *Client) error{
		"a mutex": func(ctx context.Context, c *Client) error {
			_, _, err := c.Mutex("x", WithLease(10*time.Minute)).TryLock(ctx)
			return err
		},
		"a set": func(ctx context.Context, c *Client) error {
			_, _, err := c.MultiLock("x").With(WithLease(10 * time.Minute)).TryLock(ctx)
			return err
		},
		"a waiter": func(ctx context.Context, c *Client) error {
			_, err := c.Mutex("x", WithLease(10*time.Minute)).Lock(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *wire) {
				r := w.redis(-1)
				r.AddHook(latency{time.Millisecond})
				c, err := New(Config{Redis: r, Clock: w.clock})
				if err != nil {
					w.Fatal(err)
				}
				w.release(w.lock(c, "warm", time.Minute))
				ls, _, _ := c.MultiLock("warm").TryLock(w.Context())
				_ = ls.Release(w.Context())
				w.fail("deaf")
				tried := make(chan error)
				go func() { tried <- try(w.Context(), c) }()
				w.pass(500 * time.Millisecond)
				w.fail() // only the first reply is lost
				if err := c.Close(); err != nil {
					w.Error(err)
				}
				_ = r.Close() // as its owner does next
				<-tried
				if rows := w.rows("x"); len(rows) != 0 {
					w.Errorf("a ghost holds the lock for %v", time.Until(rows[0].Expires))
				}
			})
		})
	}
}

// Close waits for it on a quorum, too.
func TestQuorumCloseDuringTheFirstTryLeavesNoGhost(t *testing.T) {
	inBubble(t, func(w *wire) {
		cfg := Config{Clock: w.clock}
		var wires []*wire
		var masters []*redis.Client
		for range 3 {
			n := w.another()
			r := n.redis(-1)
			r.AddHook(latency{time.Millisecond})
			wires, masters = append(wires, n), append(masters, r)
			cfg.Quorum = append(cfg.Quorum, r)
		}
		c, err := New(cfg)
		if err != nil {
			w.Fatal(err)
		}
		for end := w.clock() + 5*time.Second; w.clock() < end; w.pass(time.Second) {
			w.release(w.lock(c, "x", time.Second))
		}
		for _, n := range wires {
			n.fail("deaf")
		}
		tried := make(chan error)
		go func() {
			_, _, err := c.Mutex("x", WithLease(10*time.Minute)).TryLock(w.Context())
			tried <- err
		}()
		w.pass(500 * time.Millisecond)
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		w.pass(2*c.cfg.Timeout - 505*time.Millisecond)
		for _, n := range wires { // just before the try ends: no reply to it is heard any more
			n.fail()
		}
		if err := <-tried; !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrClosed) {
			w.Error(err)
		}
		if err := <-closed; err != nil {
			w.Error(err)
		}
		for _, m := range masters {
			_ = m.Close()
		}
		ghosts := 0
		for _, n := range wires {
			r := n.beside().redis(-1)
			if row := r.HGet(w.Context(), "locking:{x}", "r0").Val(); row != "" && row[0] != '-' {
				ghosts++
			}
			_ = r.Close()
			n.Server.Close()
		}
		if ghosts > 1 { // one that is not heard when the client closes keeps its vote until the lease would have ended
			w.Errorf("%d nodes have a ghost", ghosts)
		}
	})
}

// stray loses the connection of the first pipeline, whose request arrives later all the same.
type stray struct {
	left  atomic.Int32
	after time.Duration
	done  chan struct{}
}

func (*stray) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*stray) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s *stray) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if s.left.Add(-1) != 0 {
			return next(ctx, cmds)
		}
		again := make([]redis.Cmder, len(cmds))
		for i, c := range cmds {
			again[i] = redis.NewCmd(context.Background(), c.Args()...)
			c.SetErr(io.ErrUnexpectedEOF)
		}
		go func() {
			defer close(s.done)
			<-time.After(s.after)
			_ = next(context.Background(), again)
		}()
		return io.ErrUnexpectedEOF
	}
}

// A try whose connection breaks leaves nothing, even if it arrives after another try was refused and the holder
// has released the lock.
// Promise: P9
func TestTryThatArrivesAfterARefusalLeavesNoGhost(t *testing.T) {
	inBubble(t, func(w *wire) {
		r := w.redis(-1)
		s := &stray{after: 500 * time.Millisecond, done: make(chan struct{})}
		r.AddHook(s)
		c, err := New(Config{Redis: r, Clock: w.clock})
		if err != nil {
			w.Fatal(err)
		}
		defer r.Close()
		defer c.Close()
		other, closeOther := w.beside().client(Config{})
		defer closeOther()
		w.release(w.lock(c, "warm", time.Minute))
		held := w.lock(other, "x", time.Minute)
		s.left.Store(1)
		l, ok, err := c.Mutex("x", WithLease(10*time.Minute)).TryLock(w.Context())
		if l != nil || ok || err != nil {
			w.Fatal(l, ok, err)
		}
		w.pass(100 * time.Millisecond)
		w.release(held)
		<-s.done
		w.pass(10 * time.Second)
		if rows := w.rows("x"); len(rows) != 0 {
			w.Errorf("TryLock said that it is held by another; a ghost holds it for %v", time.Until(rows[0].Expires))
		}
	})
}

// Callers that give up while the server is away leave a bounded number of calls in the background.
// Promise: P9
func TestWhatIsGivenUpIsBounded(t *testing.T) {
	if testtier.RaceEnabled {
		t.Skip("eleven thousand goroutines: make test-long runs it without the race detector")
	}
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		w.fail("mute")
		before := runtime.NumGoroutine()
		const most = 10_000 // releases under way
		for range most + 1000 {
			ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
			_, _, _ = c.Mutex("x").TryLock(ctx)
			cancel()
		}
		if n := runtime.NumGoroutine() - before; n > most+100 {
			w.Errorf("%d goroutines more", n)
		}
		w.fail()
	})
}

// A second GiveBack does not succeed when another client has the tick by now, since the first never reached the
// server.
func TestGiveBackThatWasNeverHeard(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		other, closeOther := w.beside().client(Config{})
		defer closeOther()
		c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "x", Permanent: true, Schedule: "s"}})
		w.pass(time.Minute)
		now := time.Now().Truncate(time.Second)
		r := lease.Request{Lock: "x", ID: "one", Permanent: true, Lease: 3 * time.Second, Trigger: "schedule", Tick: &lease.Tick{
			At: now, Previous: now.Add(-time.Second), Schedule: "s"}}
		l := leaseOf(c.requests.Acquire(w.Context(), r).Run)
		w.fail("mute")
		_ = runOf(l).Undo(w.Context())
		w.pass(10 * time.Second)
		a := other.requests.Acquire(w.Context(), lease.Request{Lock: "x", Permanent: true, Lease: time.Minute, Trigger: "recovery", Adopt: "one"})
		if a.Verdict != lease.Granted {
			w.Fatal(a.Verdict, a.Outcome, a.Err)
		}
		w.fail()
		w.pass(5 * time.Second)
		if err := runOf(l).Undo(w.Context()); err == nil {
			w.Error("the second GiveBack is no error: the tick is said to be open, and another runs it")
		}
		w.release(leaseOf(a.Run))
	})
}
