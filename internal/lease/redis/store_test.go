package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/leasetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type tag struct{}

func TestDeadlinesAreSharedOnlyByWhatNobodyCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadlines
		began, free := time.Now(), context.WithValue(context.Background(), tag{}, "mine")
		first, _ := d.boundContext(free, 16*time.Second)
		time.Sleep(time.Second - time.Nanosecond)
		second, _ := d.boundContext(context.Background(), 16*time.Second)
		if first.Done() != second.Done() {
			t.Error("calls of one moment have two timers")
		}
		time.Sleep(time.Nanosecond)
		third, _ := d.boundContext(context.Background(), 16*time.Second)
		if first.Done() == third.Done() {
			t.Error("a call has less than fifteen sixteenths of its time")
		}
		if first.Value(tag{}) != "mine" || second.Value(tag{}) != nil {
			t.Errorf("values: %v and %v", first.Value(tag{}), second.Value(tag{}))
		}
		<-first.Done()
		if passed := time.Since(began); passed != 16*time.Second || first.Err() != context.DeadlineExceeded || third.Err() != nil {
			t.Errorf("after %v: %v, and the third: %v", passed, first.Err(), third.Err())
		}
	})
}

func TestDeadlineOfACallThatCanBeCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadlines
		parent, cancel := context.WithCancel(context.Background())
		ctx, end := d.boundContext(parent, time.Second)
		defer end()
		cancel()
		if synctest.Wait(); ctx.Err() != context.Canceled {
			t.Errorf("it does not end with its parent: %v", ctx.Err())
		}
		soon, end := context.WithTimeout(context.Background(), time.Millisecond)
		defer end()
		ctx, end = d.boundContext(soon, time.Second)
		defer end()
		if at, ok := ctx.Deadline(); !ok || time.Until(at) > time.Millisecond {
			t.Errorf("it ends after its parent: %v", at)
		}
	})
}

func TestRedirection(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.2:7000": "10.0.0.2:7000", ":7000": "10.0.0.1:7000", "fe80::1:7000": "[fe80::1]:7000", "[fe80::1]:7000": "[fe80::1]:7000",
		"redis.example:6379": "redis.example:6379", "": "10.0.0.1:6379",
	} {
		if got := redirectTarget(addr, "10.0.0.1:6379"); got != want {
			t.Errorf("%q: %s, want %s", addr, got, want)
		}
	}
}

// A caller whose context ends while it waits, the next leader among them, leaves the others to themselves.
func TestCallerLeavesTheBatch(t *testing.T) {
	onBench(t, func(w *bench) {
		w.unlock(w.lock("warm", time.Minute))
		w.Slow(100 * time.Millisecond)
		var callers sync.WaitGroup
		verdicts := make([]lease.Verdict, 6)
		for i := range verdicts {
			ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
			if i == 1 || i == 3 {
				ctx, cancel = context.WithTimeout(w.Context(), 50*time.Millisecond)
			}
			callers.Go(func() {
				defer cancel()
				verdicts[i] = w.askRow(ctx, lease.Request{Lock: fmt.Sprint("x", i), Lease: time.Minute}.WithDefaults()).Verdict
			})
			synctest.Wait()
		}
		callers.Wait()
		want := []lease.Verdict{lease.Granted, lease.Unknown, lease.Granted, lease.Unknown, lease.Granted, lease.Granted}
		if !slices.Equal(verdicts, want) {
			w.Errorf("got %q, want %q", verdicts, want)
		}
		w.Fail()
		w.Pass(time.Minute)
		w.batcher.mu.Lock()
		defer w.batcher.mu.Unlock()
		if w.batcher.under != 0 || len(w.batcher.waiting) != 0 {
			w.Errorf("%d leaders, %d waiting", w.batcher.under, len(w.batcher.waiting))
		}
	})
}

// bench is a store on a server in fake time, without a client that renews leases.
type bench struct {
	*leasetest.Wire
	*Store
	rdb *redis.Client
}

// Pass lets time pass. The store has a method of this name, too.
func (b *bench) Pass(d time.Duration) { b.Wire.Pass(d) }

// onBench runs a test of a store in fake time.
func onBench(t *testing.T, test func(b *bench)) {
	t.Helper()
	leasetest.InBubble(t, func(w *leasetest.Wire) {
		b, closeAll := benchOn(w)
		defer closeAll()
		test(b)
	})
}

// benchOn is one more store on the server of a wire.
func benchOn(w *leasetest.Wire) (b *bench, closeAll func()) {
	rdb, work := w.Redis(-1), lease.NewBackground(w.Clock)
	s := New(Config{Redis: rdb, Prefix: "locking:", Owner: "us", Timeout: time.Second, AckTimeout: 100 * time.Millisecond, Idle: 10 * time.Minute, Clock: w.Clock,
		OnForbidden: func(string, error) {}, Work: work, Observed: lease.NewObservedCache(),
		HeldToken: func(string) lease.Token { return 0 }, AskToStop: func(string, string) {}, Contended: func(string, string) {}})
	return &bench{w, s, rdb}, func() {
		work.End()
		work.Wait()
		if err := s.Close(); err != nil {
			w.Error(err)
		}
		_ = rdb.Close()
	}
}

// lock takes a mutex.
func (b *bench) lock(lock string, length time.Duration) *lease.HeldRow {
	b.Helper()
	r := lease.Request{Lock: lock, Lease: length}.WithDefaults()
	a := b.askRow(b.Context(), r)
	if a.Verdict != lease.Granted {
		b.Fatalf("lock %s: %q, %v", lock, a.Verdict, a.Err)
	}
	return &lease.HeldRow{Request: r, Grant: a.Grant}
}

// unlock releases a row as the client does that has not renewed it.
func (b *bench) unlock(row *lease.HeldRow) {
	b.Helper()
	r := lease.ReleaseRequest{Row: row, Held: true, Fresh: true}
	if answer, err := b.ReleaseSoon(b.Context(), r, b.Clock()); answer != lease.ReleasedNow || err != nil {
		b.Errorf("release %s: %q, %v", row.Request.Lock, answer, err)
	}
}

// makeCompact makes a lock that is compact and free, which the store knows, and whose scripts the server has.
func (b *bench) makeCompact(lock string) {
	b.Helper()
	for range 2 {
		b.unlock(b.lock(lock, time.Minute))
		b.Pass(time.Millisecond)
	}
	if kind := b.rdb.Type(b.Context(), b.key(lock)).Val(); kind != "string" {
		b.Fatalf("the lock is a %s", kind)
	}
}

// rows are the rows that the server has, seen over a wire of its own.
func (b *bench) rows(lock string) []lease.Row {
	b.Helper()
	other, closeOther := benchOn(b.Beside())
	defer closeOther()
	s := other.Inspect(b.Context(), []lease.InspectRequest{{Lock: lock}})[0]
	if s.Err != nil {
		b.Fatal(s.Err)
	}
	return s.Running
}

// A clock that was stepped back leaves rows that last for longer than their lease: the first renewal is due by the lease.
// Promise: P3
func TestGrantIsRenewedWithinItsLease(t *testing.T) {
	now := time.Now().UnixMicro()
	got := reply{verdict: "granted", now: now, Values: Values{int64(0), now, now + time.Hour.Microseconds(), int64(0), int64(1)}}
	g := (&Store{}).grantOf(lease.Request{Lease: time.Minute}, got)
	if g.RenewAfter <= 0 || g.RenewAfter > 20*time.Second || g.Deadline(time.Minute) > lease.HoldFor(time.Minute) {
		t.Errorf("renewed after %v, held until %v", g.RenewAfter, g.Deadline(time.Minute))
	}
}
