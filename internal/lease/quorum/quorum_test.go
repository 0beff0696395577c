package quorum

import (
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/leasetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The votes for an older tick were split, or nothing is known of it: the younger one may be settled, and takes no row.
// Promise: P5, quorum
func TestQuorumTickBehindAnOpenOneTakesNoRow(t *testing.T) {
	t.Parallel()
	var nodes []goredis.UniversalClient
	for range 3 {
		nodes = append(nodes, goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})) // no node is asked
	}
	clock := func() time.Duration { return time.Hour }
	work := lease.NewBackground(clock)
	q := New(Config{Nodes: nodes, Timeout: time.Second, Idle: time.Minute, Clock: clock, Work: work, Observed: lease.NewObservedCache()})
	defer func() {
		work.End()
		work.Wait()
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		for _, n := range nodes {
			_ = n.Close()
		}
	}()
	claimFor := func(tick int64) *claim {
		at := time.Unix(tick, 0)
		return q.newClaim(lease.Request{Lock: "x", Tick: &lease.Tick{At: at, Previous: at.Add(-time.Second), NotBefore: time.Unix(-1, 0)}}.WithDefaults(), 0, nil)
	}
	for _, tc := range []struct {
		name    string
		older   claim
		abstain bool
	}{
		{"split", claim{r: claimFor(1).r, splitVote: true, result: lease.Result{Verdict: lease.Held}}, true},
		{"unknown", claim{r: claimFor(1).r, result: lease.Result{Verdict: lease.Unknown}}, true},
		{"held", claim{r: claimFor(1).r, result: lease.Result{Verdict: lease.Held}}, false},
		{"granted", claim{r: claimFor(1).r, result: lease.Result{Verdict: lease.Granted}}, false},
		{"no tick", claim{r: lease.Request{Lock: "x"}, splitVote: true, result: lease.Result{Verdict: lease.Held}}, false},
	} {
		younger := claimFor(2)
		younger.phase, younger.older = "row", &tc.older
		younger.nextCall()
		if younger.r.Abstain != tc.abstain || (younger.phase == "read") != tc.abstain {
			t.Errorf("%s: abstains: %v, phase %s", tc.name, younger.r.Abstain, younger.phase)
		}
	}
}

// The Redis client of a node does not repeat a call without a reply, neither alone nor in a pipeline: package
// locking has to know that no answer has come.
// Promise: P4
func TestQuorumRetriesOfTheRedisClientAreOurs(t *testing.T) {
	leasetest.InBubble(t, func(w *leasetest.Wire) {
		work := lease.NewBackground(w.Clock)
		cfg := Config{Prefix: "locking:", Owner: "o", Timeout: time.Second, Idle: time.Minute, Clock: w.Clock, Work: work, Observed: lease.NewObservedCache(),
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

// Trips may be launched while the client closes, and after that: by a lease that is released late.
func TestCrewIsClosedWhileItIsAskedForMore(t *testing.T) {
	for range 300 {
		c := newWorkers()
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for range 4 {
					done := make(chan struct{})
					c.launch(func() { close(done) })
					<-done
				}
			})
		}
		c.close()
		callers.Wait()
		c.close()
	}
}
