package election_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/locking"
)

const leadershipLease = 15 * time.Second

func leadership(t *testing.T, locks *locking.Client) *election.Leadership {
	t.Helper()
	o, err := election.NewLeadership(election.LeadershipConfig{Locks: locks, Name: "leader", Lease: leadershipLease})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// candidate campaigns until its stop is called, which waits.
type candidate struct {
	leadership *election.Leadership
	die        func() // without a word
	stop       func()
}

func (c *cluster) candidate(name string, lead func(context.Context, *election.Term)) *candidate {
	c.t.Helper()
	locks, die := c.locks(name)
	ctx, cancel := context.WithCancel(context.Background())
	k := &candidate{leadership: leadership(c.t, locks), die: die}
	var campaign sync.WaitGroup
	campaign.Go(func() { k.leadership.Campaign(ctx, lead) })
	k.stop = func() {
		cancel()
		campaign.Wait()
	}
	c.t.Cleanup(k.stop)
	return k
}

// untilEnd is work that stops at the end of its context.
func untilEnd(ctx context.Context, _ *election.Term) { <-ctx.Done() }

func TestOneLeaderAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var mu sync.Mutex
		leading, most, newest := 0, 0, int64(0)
		count := func(ctx context.Context, term *election.Term) {
			mu.Lock()
			leading++
			most = max(most, leading)
			if term.Token() <= newest {
				t.Errorf("token %d after %d", term.Token(), newest)
			}
			newest = term.Token()
			mu.Unlock()
			select { // resigns now and then
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
			}
			mu.Lock()
			leading--
			mu.Unlock()
		}
		for _, name := range []string{"a", "b", "c"} {
			defer c.candidate(name, count).stop()
		}
		time.Sleep(5 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if most != 1 || newest == 0 {
			t.Errorf("at most %d leaders at once, newest token %d", most, newest)
		}
	})
}

func TestLeaderIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		locks, _ := c.locks("observer")
		o := leadership(t, locks)
		if _, ok, err := o.Leader(context.Background()); ok || err != nil {
			t.Errorf("before any candidate: %v %v", ok, err)
		}
		k := c.candidate("a", untilEnd)
		synctest.Wait()
		leader, ok, err := o.Leader(context.Background())
		if !ok || err != nil || leader.Name != "a" || leader.Token == 0 {
			t.Errorf("leader %+v %v %v", leader, ok, err)
		}
		k.stop()
		if _, ok, _ := o.Leader(context.Background()); ok {
			t.Error("leadership was not released")
		}
	})
}

// TestLeadershipIsReleasedOnlyAfterTheWork releases leadership only when the work of the leader has ended.
// Promise: P3
func TestLeadershipIsReleasedOnlyAfterTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		locks, _ := c.locks("observer")
		slow := func(ctx context.Context, _ *election.Term) {
			<-ctx.Done()
			time.Sleep(40 * time.Second) // longer than the lease: it has to be renewed meanwhile
			if leader, ok, err := leadership(t, locks).Leader(context.Background()); !ok || leader.Name != "a" {
				t.Errorf("while a's work still stops: %+v %v %v", leader, ok, err)
			}
		}
		k := c.candidate("a", slow)
		synctest.Wait()
		k.stop()
	})
}

func TestDeadLeaderIsReplacedAfterItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.candidate("a", untilEnd)
		synctest.Wait()
		elected := make(chan time.Time, 10)
		b := c.candidate("b", func(ctx context.Context, _ *election.Term) {
			elected <- time.Now()
			<-ctx.Done()
		})
		defer b.stop()
		time.Sleep(time.Minute)
		died := time.Now()
		a.die()
		at := <-elected
		if waited := at.Sub(died); waited < leadershipLease/2 || waited > leadershipLease+leadershipLease/2 {
			t.Errorf("b was elected %v after a died", waited)
		}
	})
}

func TestWorkIsCancelledBeforeALostTermEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ended := make(chan time.Duration, 1)
		k := c.candidate("a", func(ctx context.Context, term *election.Term) {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), election.ErrEndangered) {
				t.Errorf("cause: %v", context.Cause(ctx))
			}
			ended <- term.Remaining()
		})
		synctest.Wait()
		c.server.Close()
		if left := <-ended; left <= 0 || left > leadershipLease/3 {
			t.Errorf("%v of the lease were left", left)
		}
		k.stop()
	})
}

func TestFaultyLeadership(t *testing.T) {
	t.Parallel()
	for _, cfg := range []election.LeadershipConfig{{}, {Name: "leader"}, {Locks: &locking.Client{}}, {Locks: &locking.Client{}, Name: "x", Lease: 1},
		{Locks: &locking.Client{}, Name: "a}b"}} {
		if _, err := election.NewLeadership(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	if _, err := election.New(election.Config{}); err == nil {
		t.Error("an elector without locks was accepted")
	}
}
