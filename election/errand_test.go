package election_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/locking"
)

// errand is one that was asked for now, by a taker's identity of its own.
func errand(taker string) election.Errand {
	now := time.Now()
	return election.Errand{Job: "report", ID: "please", Taker: taker, Created: now, Expires: now.Add(time.Minute), Lease: 5 * time.Second}
}

func (c *cluster) take(e *election.Elector, what election.Errand, want election.Verdict) election.Result {
	c.t.Helper()
	r := e.Take(context.Background(), what)
	if r.Verdict != want {
		c.t.Fatalf("%s takes it: %+v, want %s", what.Taker, r, want)
	}
	return r
}

func TestErrandIsBegunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b, what := c.elector("a"), c.elector("b"), errand("1")
		first := c.take(a, what, election.Granted)
		what.Taker = "2"
		if r := c.take(b, what, election.Taken); r.By != "a" || !r.Until.Equal(time.Now().Add(5*time.Second)) {
			t.Errorf("while it is not begun: %+v", r)
		}
		if err := first.Term.End(context.Background()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if r := c.take(b, what, election.Taken); !r.Until.IsZero() {
				t.Errorf("after it was begun: %+v", r)
			}
			time.Sleep(30 * time.Second)
		}
	})
}

func TestErrandOfADeadTakerIsTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		locks, die := c.locks("a")
		a, err := election.New(election.Config{Locks: locks})
		if err != nil {
			t.Fatal(err)
		}
		b, other, what := c.elector("b"), c.elector("c"), errand("1")
		dead := c.take(a, what, election.Granted)
		die() // takes ten seconds
		what.Taker = "2"
		heir := c.take(b, what, election.Granted)
		if heir.Term.Attempt() != 2 || heir.Term.Token() <= dead.Term.Token() {
			t.Errorf("attempt %d, token %d after %d", heir.Term.Attempt(), heir.Term.Token(), dead.Term.Token())
		}
		what.Taker = "3"
		if r := c.take(other, what, election.Taken); r.By != "b" {
			t.Errorf("while another has taken its place: %+v", r)
		}
		if err := dead.Term.End(context.Background()); err == nil {
			t.Error("the first one begins it, too")
		}
		if err := heir.Term.End(context.Background()); err != nil {
			t.Error(err)
		}
		if r := c.take(other, what, election.Taken); !r.Until.IsZero() {
			t.Errorf("after it was begun: %+v", r)
		}
	})
}

func TestErrandThatIsReturnedIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b, what := c.elector("a"), c.elector("b"), errand("1")
		if err := c.take(a, what, election.Granted).Term.Return(context.Background()); err != nil {
			t.Fatal(err)
		}
		what.Taker = "2"
		if r := c.take(b, what, election.Granted); r.Term.Attempt() != 1 {
			t.Errorf("attempt %d: nobody has died", r.Term.Attempt())
		}
	})
}

func TestErrandExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b, what := c.elector("a"), c.elector("b"), errand("1")
		time.Sleep(time.Minute + time.Millisecond)
		c.take(a, what, election.Settled)
		what.Taker = "2"
		c.take(b, what, election.Before)
	})
}

// TestErrandLeavesNothing has a taker die and nobody take its place: neither the lock nor the dead one's row stays.
func TestErrandLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, die := c.locks("a")
		b, _ := c.locks("b")
		takers, err := election.New(election.Config{Locks: a})
		if err != nil {
			t.Fatal(err)
		}
		what := errand("1")
		c.take(takers, what, election.Granted)
		die()
		look := []locking.LookRequest{{Lock: "{report}:request:please"}}
		if s := b.Look(context.Background(), look)[0]; len(s.Orphans) != 1 {
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

func TestErrandOfADeadTakerExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		locks, die := c.locks("a")
		a, err := election.New(election.Config{Locks: locks})
		if err != nil {
			t.Fatal(err)
		}
		b, what := c.elector("b"), errand("1")
		c.take(a, what, election.Granted)
		die()
		time.Sleep(time.Minute)
		what.Taker = "2"
		c.take(b, what, election.Settled)
		what.Taker = "3"
		if r := c.take(b, what, election.Taken); !r.Until.IsZero() {
			t.Errorf("after it was found expired: %+v", r)
		}
	})
}
