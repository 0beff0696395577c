package quorum

import (
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/background"
	"github.com/cronclave/cronclave/internal/lease/leasetest"
	"github.com/cronclave/cronclave/internal/lease/observed"
)

// The Redis client of a node does not repeat a call without a reply, neither alone nor in a pipeline: package
// locking has to know that no answer has come.
// Promise: P4
func TestQuorumRetriesOfTheRedisClientAreOurs(t *testing.T) {
	leasetest.InBubble(t, func(w *leasetest.Wire) {
		work := background.New(w.Clock)
		cfg := Config{Prefix: "locking:", Owner: "o", Timeout: time.Second, Idle: time.Minute, Clock: w.Clock, Work: work, Observed: observed.New(),
			HeldToken: func(string) lease.Token { return 0 }}
		var wires []*leasetest.Wire
		for range 3 {
			one := w.Another()
			defer one.Server.Close()
			r := one.Redis(3)
			defer r.Close()
			wires, cfg.Nodes = append(wires, one), append(cfg.Nodes, r)
		}
		q := New(cfg)
		defer func() {
			work.End()
			work.Wait()
			if err := q.Close(); err != nil {
				w.Error(err)
			}
		}()
		call := q.releaseOf("m", "id", 0, 0, false)
		for _, calls := range [][]nodeCall{{call}, {call, call}} {
			locksOnce(w, q, "warm")
			w.Pass(2 * probeAfter)                                              // nothing else is going on
			if v := q.nodes[0].roundTrip(w.Context(), calls); v[0].err != nil { // there is a connection
				w.Fatal(v[0].err)
			}
			wires[0].Cut(1)
			for _, v := range q.nodes[0].roundTrip(w.Context(), calls) {
				if v.err == nil {
					w.Errorf("%d calls: %q", len(calls), v.word)
				}
			}
		}
	})
}

// locksOnce takes a lock, and gives it back.
func locksOnce(w *leasetest.Wire, q *Store, lock string) {
	w.Helper()
	r := lease.Request{Lock: lock, Lease: time.Minute}.WithDefaults()
	got := q.acquireOne(w.Context(), r)
	if got.Verdict != lease.Granted {
		w.Fatalf("lock %s: %q, %v", lock, got.Verdict, got.Err)
	}
	row := &lease.HeldRow{Request: r, Grant: got.Grant}
	if answer, err := q.ReleaseSoon(w.Context(), lease.ReleaseRequest{Row: row, Held: true, Fresh: true}, w.Clock()); answer != lease.ReleasedNow || err != nil {
		w.Errorf("release %s: %q, %v", lock, answer, err)
	}
}
