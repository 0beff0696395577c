package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/lease"
)

var warehouse = election.Entry{Pool: "warehouse", Slots: 1, Lease: 10 * time.Second}

func TestPoolServesInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.elector("a"), c.elector("b")
		held, ok, err := a.TryAcquirePool(context.Background(), warehouse)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, ok, err := b.TryAcquirePool(context.Background(), warehouse); ok || err != nil {
			t.Fatal("while it is full:", ok, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := b.AcquirePool(ctx, warehouse); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("a claimant that gives up:", err)
		}
		entered := make(chan *election.Term)
		go func() {
			term, err := b.AcquirePool(context.Background(), warehouse)
			if err != nil {
				t.Error(err)
			}
			entered <- term
		}()
		time.Sleep(30 * time.Second) // the holder is renewed
		synctest.Wait()
		if _, ok, _ := a.TryAcquirePool(context.Background(), warehouse); ok {
			t.Fatal("a newcomer passed a waiting claimant")
		}
		if err := held.End(context.Background()); err != nil {
			t.Fatal(err)
		}
		term := <-entered
		if term.Remaining() < 9*time.Second {
			t.Errorf("it has %v", term.Remaining())
		}
		_ = term.End(context.Background())
	})
}

// Of a roll-out that changes the number of slots each side goes by its own.
func TestPoolsOfTwoSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.elector("a"), c.elector("b")
		larger := warehouse
		larger.Slots = 2
		one, ok, err := a.TryAcquirePool(context.Background(), warehouse)
		two, ok2, err2 := b.TryAcquirePool(context.Background(), larger)
		if !ok || !ok2 || err != nil || err2 != nil {
			t.Fatal(ok, err, ok2, err2)
		}
		_ = one.End(context.Background())
		_ = two.End(context.Background())
	})
}

// A term with a slot of a pool ends with the first of both, and ends both.
// Promise: P3
func TestTermWithASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		locks, _ := c.locks("a")
		a, err := election.New(election.Config{Locks: locks})
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range []string{"end", "return", "loss"} {
			won := claimOne(a, election.Claim{Lock: election.JobLock("report"), ID: end, Trigger: "manual", Slots: 1, Lease: time.Minute})
			slot, ok, err := a.TryAcquirePool(context.Background(), warehouse)
			if won.Verdict != election.Granted || !ok || err != nil {
				t.Fatalf("%s: %+v, %v, %v", end, won, ok, err)
			}
			term := election.TermOf(won).With(slot)
			if term.Length() != warehouse.Lease || term.Deadline() != slot.Deadline() || term.ID() != end || term.Token() != election.TermOf(won).Token() {
				t.Errorf("%v, %v, %v", term.Length(), term.Deadline(), term.ID())
			}
			switch end {
			case "end":
				err = term.End(context.Background())
			case "return":
				err = term.Undo(context.Background())
			default:
				_ = slot.End(context.Background())
				<-term.Context().Done()
				if !errors.Is(context.Cause(term.Context()), lease.ErrReleased) || election.TermOf(won).Context().Err() != nil {
					t.Errorf("ended with %v", context.Cause(term.Context()))
				}
				err = term.End(context.Background())
			}
			if err != nil {
				t.Errorf("%s: %v", end, err)
			}
			states := locks.Engine().Inspect(context.Background(), []lease.InspectRequest{{Lock: election.PoolLock("warehouse")}, {Lock: "{report}:job", Permanent: true}})
			if n := len(states[0].Running) + len(states[1].Running); n > 0 {
				t.Errorf("%s: %d rows are left", end, n)
			}
		}
	})
}

// TestPoolOf finds the pool in the lock of a pool, and none in another lock.
func TestPoolOf(t *testing.T) {
	if pool, ok := election.PoolOf(election.PoolLock("warehouse")); !ok || pool != "warehouse" {
		t.Errorf("%q, %v", pool, ok)
	}
	for _, lock := range []string{"{report}:job", "leader", "warehouse}:pool"} {
		if pool, ok := election.PoolOf(lock); ok {
			t.Errorf("%s is of the pool %q", lock, pool)
		}
	}
}
