package election_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/lease"
)

// triggerRequest returns a request that was made now, for the given identity of a claimant.
func triggerRequest(claimant string) election.TriggerRequest {
	now := time.Now()
	return election.TriggerRequest{Job: "report", ID: "please", Claimant: claimant, Created: now, Expires: now.Add(time.Minute), Lease: 5 * time.Second}
}

func (c *cluster) claim(e *election.Elector, what election.TriggerRequest, want election.Verdict) election.Result {
	c.t.Helper()
	r := e.ClaimTrigger(context.Background(), what)
	if r.Verdict != want {
		c.t.Fatalf("%s claims it: %+v, want %s", what.Claimant, r, want)
	}
	return r
}

// TestTriggerRequestIsBegunOnce refuses a trigger request to other replicas while it is claimed and after its run began.
// Promise: P1
func TestTriggerRequestIsBegunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b, what := c.elector("a"), c.elector("b"), triggerRequest("1")
		first := c.claim(a, what, election.Granted)
		what.Claimant = "2"
		if r := c.claim(b, what, election.Taken); r.Holder != "a" || !r.Until.Equal(time.Now().Add(5*time.Second)) {
			t.Errorf("while it is not begun: %+v", r)
		}
		if err := election.TermOf(first).End(context.Background()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if r := c.claim(b, what, election.Taken); !r.Until.IsZero() {
				t.Errorf("after it was begun: %+v", r)
			}
			time.Sleep(30 * time.Second)
		}
	})
}

// TestTriggerRequestOfADeadClaimantIsClaimedAgain gives a trigger request to another replica when the first died before it began.
// Promise: P5
func TestTriggerRequestOfADeadClaimantIsClaimedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		locks, die := c.locks("a")
		a, err := election.New(election.Config{Locks: locks})
		if err != nil {
			t.Fatal(err)
		}
		b, other, what := c.elector("b"), c.elector("c"), triggerRequest("1")
		dead := c.claim(a, what, election.Granted)
		die() // takes ten seconds
		what.Claimant = "2"
		successor := c.claim(b, what, election.Granted)
		if election.TermOf(successor).Attempt() != 2 || election.TermOf(successor).Token() <= election.TermOf(dead).Token() {
			t.Errorf("attempt %d, token %d after %d", election.TermOf(successor).Attempt(), election.TermOf(successor).Token(), election.TermOf(dead).Token())
		}
		what.Claimant = "3"
		if r := c.claim(other, what, election.Taken); r.Holder != "b" {
			t.Errorf("while another claims it: %+v", r)
		}
		if err := election.TermOf(dead).End(context.Background()); err == nil {
			t.Error("the first claimant begins it, too")
		}
		if err := election.TermOf(successor).End(context.Background()); err != nil {
			t.Error(err)
		}
		if r := c.claim(other, what, election.Taken); !r.Until.IsZero() {
			t.Errorf("after it was begun: %+v", r)
		}
	})
}

// TestReturnedTriggerRequestIsOpen gives a returned trigger request to the next replica as its first attempt.
// Promise: P5
func TestReturnedTriggerRequestIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b, what := c.elector("a"), c.elector("b"), triggerRequest("1")
		if err := election.TermOf(c.claim(a, what, election.Granted)).Undo(context.Background()); err != nil {
			t.Fatal(err)
		}
		what.Claimant = "2"
		if r := c.claim(b, what, election.Granted); election.TermOf(r).Attempt() != 1 {
			t.Errorf("attempt %d: no claimant has died", election.TermOf(r).Attempt())
		}
	})
}

func TestTriggerRequestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b, what := c.elector("a"), c.elector("b"), triggerRequest("1")
		time.Sleep(time.Minute + time.Millisecond)
		c.claim(a, what, election.Settled)
		what.Claimant = "2"
		c.claim(b, what, election.Before)
	})
}

// TestTriggerRequestLeavesNothing finds neither the lock nor the row of a claimant that died and was not replaced.
// Promise: P9
func TestTriggerRequestLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, die := c.locks("a")
		b, _ := c.locks("b")
		claimant, err := election.New(election.Config{Locks: a})
		if err != nil {
			t.Fatal(err)
		}
		what := triggerRequest("1")
		c.claim(claimant, what, election.Granted)
		die()
		look := []lease.InspectRequest{{Lock: "{report}:request:please"}}
		if s := b.Engine().Inspect(context.Background(), look)[0]; len(s.Orphans) != 1 {
			t.Fatalf("%+v", s)
		}
		time.Sleep(time.Hour)
		rdb := redis.NewClient(&redis.Options{Addr: c.server.Addr(), Dialer: c.server.Dial})
		defer rdb.Close()
		if keys, err := rdb.Keys(context.Background(), "*").Result(); err != nil || len(keys) != 0 {
			t.Errorf("left over: %v, %v", keys, err)
		}
	})
}

func TestTriggerRequestOfADeadClaimantExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		locks, die := c.locks("a")
		a, err := election.New(election.Config{Locks: locks})
		if err != nil {
			t.Fatal(err)
		}
		b, what := c.elector("b"), triggerRequest("1")
		c.claim(a, what, election.Granted)
		die()
		time.Sleep(time.Minute)
		what.Claimant = "2"
		c.claim(b, what, election.Settled)
		what.Claimant = "3"
		if r := c.claim(b, what, election.Taken); !r.Until.IsZero() {
			t.Errorf("after it was found expired: %+v", r)
		}
	})
}
