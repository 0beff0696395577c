package locking

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// attempted asks for the next attempt in the background.
func (w *wire) attempted(ctx context.Context, l *Lease) (answer chan error) {
	answer = make(chan error, 1)
	go func() {
		n, err := runOf(l).NextAttempt(ctx)
		if err == nil && n != runOf(l).Attempt() {
			w.Errorf("attempt %d, and the lease has %d", n, runOf(l).Attempt())
		}
		answer <- err
	}()
	return answer
}

// attempts are those of the lease and of its row.
func (w *wire) attempts(l *Lease, lease, row int) {
	w.Helper()
	if rows := w.rows(l.lockName()); runOf(l).Attempt() != lease || len(rows) != 1 || rows[0].Attempt != row {
		w.Errorf("attempt %d, rows %+v; want %d, %d in the row", runOf(l).Attempt(), rows, lease, row)
	}
}

// An attempt has begun when its number is acknowledged, and not before; the server counts it once, however often it is asked.
// Promise: P6
func TestAttemptBeginsWhenItIsAcknowledged(t *testing.T) {
	for how, row := range map[string]int{"mute": 1, "deaf": 2} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(w *wire) {
				c, closeAll := w.client(Config{})
				defer closeAll()
				l := leaseOf(c.requests.Acquire(w.Context(), lease.Request{Lock: "x", Lease: time.Minute, Trigger: "schedule"}).Run)
				w.pass(25 * time.Second) // renewed once, so that the server knows the script
				w.fail(how)
				answer := w.attempted(w.Context(), l)
				w.pass(20 * time.Second)
				if len(answer) != 0 {
					w.Fatalf("begun: %v", <-answer)
				}
				w.attempts(l, 1, row)
				w.fail()
				w.pass(3 * time.Second)
				if len(answer) != 1 || <-answer != nil {
					w.Error("not begun")
				}
				w.attempts(l, 2, 2)
				if left := l.Remaining(); left < 50*time.Second {
					w.Errorf("begun with %v of its lease", left)
				}
			})
		})
	}
}

// TestAttemptNeedsTheReplicas begins an attempt only when Redis replicas have acknowledged its number.
// Promise: P6
func TestAttemptNeedsTheReplicas(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.acked()
		defer closeAll()
		w.replicas(1)
		l := leaseOf(w.wants(c.requests.Acquire(w.Context(), lease.Request{Lock: "x", Lease: time.Minute, Trigger: "schedule"}), lease.Granted).Run)
		w.replicas(0)
		answer := w.attempted(w.Context(), l)
		w.pass(10 * time.Second)
		if len(answer) != 0 {
			w.Fatalf("begun: %v", <-answer)
		}
		w.attempts(l, 1, 2)
		w.replicas(1)
		w.pass(3 * time.Second)
		if len(answer) != 1 || <-answer != nil {
			w.Error("not begun")
		}
		w.attempts(l, 2, 2)
	})
}

// A wait for an attempt's number ends at once with its context, its lease or a release, and a
// later one asks for the same number.
func TestWaitForAnAttemptEnds(t *testing.T) {
	enough := errors.New("enough")
	for name, tc := range map[string]struct {
		end  func(w *wire, l *Lease, stop context.CancelCauseFunc)
		want []error
	}{
		"with its context":    {func(_ *wire, _ *Lease, stop context.CancelCauseFunc) { stop(enough) }, []error{ErrUnknown, enough}},
		"with the lease":      {func(w *wire, l *Lease, _ context.CancelCauseFunc) { w.pass(l.Remaining()) }, []error{ErrLost}},
		"with a release":      {func(w *wire, l *Lease, _ context.CancelCauseFunc) { w.fail(); w.release(l) }, []error{ErrReleased}},
		"with another holder": {func(w *wire, l *Lease, _ context.CancelCauseFunc) { w.takeOver(l) }, []error{ErrLost}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *wire) {
				c, closeAll := w.client(Config{})
				defer closeAll()
				l := leaseOf(c.requests.Acquire(w.Context(), lease.Request{Lock: "x", Lease: time.Minute, Trigger: "schedule"}).Run)
				ctx, stop := context.WithCancelCause(w.Context())
				defer stop(nil)
				w.fail("mute")
				answer := w.attempted(ctx, l)
				w.pass(500 * time.Millisecond)
				tc.end(w, l, stop)
				w.pass(time.Millisecond)
				if name == "with another holder" {
					w.fail()
					w.pass(3 * time.Second)
				}
				if len(answer) != 1 {
					w.Fatal("it goes on")
				}
				err := <-answer
				for _, want := range tc.want {
					if !errors.Is(err, want) {
						w.Errorf("%v, want %v", err, want)
					}
				}
				w.fail()
				if l.Context().Err() != nil {
					return
				}
				if n, err := runOf(l).NextAttempt(w.Context()); name == "with its context" && (n != 2 || err != nil) {
					w.Errorf("attempt %d, %v", n, err)
				}
			})
		})
	}
}

// takeOver lets another have the row of a lease, as if that had ended on the server.
func (w *wire) takeOver(l *Lease) {
	w.Helper()
	other, closeOther := w.beside().client(Config{})
	defer closeOther()
	key := other.lockKey(l.lockName())
	if err := other.cfg.Redis.HSet(w.Context(), key, "e0", 1).Err(); err != nil {
		w.Fatal(err)
	}
	if a := other.requests.Acquire(w.Context(), lease.Request{Lock: l.lockName(), ID: "heir", Adopt: l.ID(), Trigger: "recovery", Lease: time.Hour}); a.Verdict != lease.Granted || a.Run.Attempt() != 2 {
		w.Fatalf("%+v", a)
	}
}

// Two callers have two numbers.
func TestAttemptsOfTwoCallers(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		l := leaseOf(c.requests.Acquire(w.Context(), lease.Request{Lock: "x", Lease: time.Minute, Trigger: "schedule"}).Run)
		var mu sync.Mutex
		got := map[int]bool{}
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				n, err := runOf(l).NextAttempt(w.Context())
				if err != nil {
					w.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got[n] = true
			})
		}
		all.Wait()
		for n := 2; n <= 6; n++ {
			if !got[n] {
				w.Errorf("attempts %v", got)
			}
		}
		w.attempts(l, 6, 6)
	})
}

// away is a master that does not answer while it is on: connections to it end, or hang.
type away struct {
	atomic.Bool
	hangs bool
}

func (a *away) fail(ctx context.Context) error {
	if a.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return io.EOF
}

func (a *away) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a *away) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if a.Load() {
			cmd.SetErr(a.fail(ctx))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}
func (a *away) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if a.Load() {
			err := a.fail(ctx)
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// A quorum acknowledges an attempt by a majority.
// Promise: P6
func TestAttemptNeedsAMajority(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, masters, closeAll := w.quorum(3)
		defer closeAll()
		gone := &away{}
		for _, m := range masters[:2] {
			m.AddHook(gone)
		}
		l := leaseOf(c.requests.Acquire(w.Context(), lease.Request{Lock: "x", Lease: time.Minute, Trigger: "schedule", Permanent: true}).Run)
		w.pass(time.Second)
		gone.Store(true)
		answer := w.attempted(w.Context(), l)
		w.pass(10 * time.Second)
		if len(answer) != 0 || runOf(l).Attempt() != 1 {
			w.Fatalf("begun as %d", runOf(l).Attempt())
		}
		gone.Store(false)
		w.pass(5 * time.Second)
		if len(answer) != 1 || <-answer != nil {
			w.Fatal("not begun")
		}
		if rows := c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "x", Permanent: true}})[0].Running; len(rows) != 1 || rows[0].Attempt != 2 {
			w.Errorf("rows %+v", rows)
		}
	})
}

// A holder that no message reaches gets the stop request with its next renewal, a third of the lease later at
// most.
// Promise: P5
func TestStopOutlivesItsMessage(t *testing.T) {
	inBubble(t, func(w *wire) {
		holder, closeHolder := w.client(Config{})
		other, closeOther := w.client(Config{})
		defer closeHolder()
		defer closeOther()
		l := w.lock(holder, "x", 30*time.Second)
		defer w.release(l)
		if told := other.requests.Stop(w.Context(), []lease.StopRequest{{Lock: "x", ID: l.ID(), Reason: "user"}})[0]; told.ID != l.ID() || told.Err != nil {
			w.Fatalf("%+v", told)
		}
		w.pass(9 * time.Second)
		if why := runOf(l).StopReason(); why != "" {
			w.Errorf("before its renewal: %q", why)
		}
		w.pass(2 * time.Second)
		if why := runOf(l).StopReason(); why != "user" {
			w.Errorf("after its renewal: %q", why)
		}
	})
}

// A server that forgets loses the stop request, too; asked again, it has it.
// Promise: P5
func TestStopOfARowThatWasPutBack(t *testing.T) {
	inBubble(t, func(w *wire) {
		holder, closeHolder := w.client(Config{})
		other, closeOther := w.client(Config{})
		defer closeHolder()
		defer closeOther()
		l := w.lock(holder, "x", 30*time.Second)
		defer w.release(l)
		stop := func() lease.StopAnswer {
			return other.requests.Stop(context.Background(), []lease.StopRequest{{Lock: "x", ID: l.ID(), Reason: "user"}})[0]
		}
		stop()
		if err := other.cfg.Redis.FlushAll(w.Context()).Err(); err != nil {
			w.Fatal(err)
		}
		if told := stop(); told.ID != "" || told.Err != nil {
			w.Errorf("of a row that is forgotten: %+v", told)
		}
		w.pass(11 * time.Second) // it is put back
		if why := runOf(l).StopReason(); why != "" {
			w.Errorf("after the put-back: %q", why)
		}
		if told := stop(); told.ID != l.ID() {
			w.Fatalf("%+v", told)
		}
		w.pass(11 * time.Second)
		if why := runOf(l).StopReason(); why != "user" {
			w.Errorf("asked again: %q", why)
		}
	})
}

// TestMarksAreBounded removes the mark of a stop request with its row.
// Promise: P9
func TestMarksAreBounded(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		for _, end := range []string{"released", "expired"} {
			l := w.lock(c, "x", time.Second)
			c.requests.Stop(w.Context(), []lease.StopRequest{{Lock: "x", ID: l.ID(), Reason: "user"}})
			if !c.cfg.Redis.HExists(w.Context(), c.lockKey("x"), "s0").Val() {
				w.Fatal("there is no mark")
			}
			if end == "expired" {
				c.keeper.remove(l)
				w.pass(2 * time.Second)
				c.requests.Inspect(w.Context(), []lease.InspectRequest{{Lock: "x"}})
			} else {
				w.release(l)
			}
			if c.cfg.Redis.HExists(w.Context(), c.lockKey("x"), "s0").Val() {
				w.Errorf("%s: the mark is still there", end)
			}
		}
	})
}

// TestFaultyStops refuses faulty requests at once.
func TestFaultyStops(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		for _, r := range []lease.StopRequest{{Lock: "x", ID: "a"}, {Lock: "x", ID: "a", Reason: "a\tb"}, {Lock: "x", ID: "a\n", Reason: "r"},
			{Lock: "x", Reason: "r"}, {ID: "a", Reason: "r"}} {
			if told := c.requests.Stop(w.Context(), []lease.StopRequest{r})[0]; told.Err == nil || told.ID != "" {
				w.Errorf("%+v: %+v", r, told)
			}
		}
	})
}
