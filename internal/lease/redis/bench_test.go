package redis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/background"
	"github.com/cronclave/cronclave/internal/lease/leasetest"
	"github.com/cronclave/cronclave/internal/lease/observed"
)

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
	rdb, work := w.Redis(-1), background.New(w.Clock)
	s := New(Config{Redis: rdb, Prefix: "locking:", Owner: "us", Timeout: time.Second, AckTimeout: 100 * time.Millisecond, Idle: 10 * time.Minute, Clock: w.Clock,
		OnForbidden: func(string, error) {}, Work: work, Observed: observed.New(),
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
	return s.Rows
}
