package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/locking"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is an in-process Redis inside a bubble of fake time.
type cluster struct {
	t      *testing.T
	server *embedded.Server
	start  time.Time
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	server, err := embedded.Start(embedded.Config{DialOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return &cluster{t: t, server: server, start: time.Now()}
}

// locks is a member's client. It is closed by the function it returns, as when the member dies: nothing is released.
func (c *cluster) locks(owner string) (locks *locking.Client, die func()) {
	c.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: c.server.Addr(), Dialer: c.server.Dial, ContextTimeoutEnabled: true, MaxRetries: -1,
		DialerRetries: 1})
	locks, err := locking.New(locking.Config{Redis: rdb, Prefix: "test:", Owner: owner,
		Clock: func() time.Duration { return time.Since(c.start) }})
	if err != nil {
		c.t.Fatal(err)
	}
	die = func() {
		_ = rdb.Close() // first, so that nothing can be released
		_ = locks.Close()
		time.Sleep(10 * time.Second) // of fake time: the client's dials in the background end
	}
	c.t.Cleanup(die)
	return locks, die
}

func (c *cluster) elector(owner string) *election.Elector {
	c.t.Helper()
	locks, _ := c.locks(owner)
	e, err := election.New(election.Config{Locks: locks})
	if err != nil {
		c.t.Fatal(err)
	}
	return e
}

// claimOne claims one tick.
func claimOne(e *election.Elector, c election.Claim) election.Result {
	return e.Claim(context.Background(), []election.Claim{c})[0]
}

const minutely = "minutely-digest"

// announced is a job whose schedule the cluster has known since a minute ago, and its first tick after that, now due.
func announced(t *testing.T, e *election.Elector) election.Claim {
	t.Helper()
	if st := e.Inspect(context.Background(), []election.InspectRequest{{Lock: election.JobLock("report"), Schedule: minutely}})[0]; st.Err != nil {
		t.Fatal(st.Err)
	}
	time.Sleep(time.Minute)
	tick := time.Now().Truncate(time.Minute)
	return election.Claim{Lock: election.JobLock("report"), ID: "first", Trigger: "schedule", Slots: 1, Lease: 30 * time.Second,
		Tick: &election.Tick{At: tick, Previous: tick.Add(-time.Minute), Schedule: minutely, PerTick: 1}}
}

func TestTickHasOneWinner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.elector("a"), c.elector("b")
		claim := announced(t, a)
		won := claimOne(a, claim)
		if won.Verdict != election.Granted || election.TermOf(won).Attempt() != 1 || election.TermOf(won).Slot() != 0 || election.TermOf(won).ID() != "first" {
			t.Fatalf("the first claim: %+v", won)
		}
		claim.ID = "second"
		taken := claimOne(b, claim)
		if taken.Verdict != election.Taken || taken.Holder != "a" || !taken.Until.Equal(time.Now().Add(30*time.Second)) {
			t.Errorf("while the winner runs: %+v", taken)
		}
		if err := election.TermOf(won).End(context.Background()); err != nil {
			t.Fatal(err)
		}
		if again := claimOne(b, claim); again.Verdict != election.Taken {
			t.Errorf("after a short run, which is when a mere lock runs it twice: %+v", again)
		}
	})
}

func TestLaterGrantHasTheGreaterToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.elector("a")
		claim := announced(t, a)
		newest := int64(0)
		for range 5 {
			r := claimOne(a, claim)
			if r.Verdict != election.Granted || election.TermOf(r).Token() <= newest {
				t.Fatalf("after token %d: %+v", newest, r)
			}
			newest = election.TermOf(r).Token()
			_ = election.TermOf(r).End(context.Background())
			time.Sleep(time.Minute)
			claim.ID += "+"
			claim.Tick.Previous, claim.Tick.At = claim.Tick.At, claim.Tick.At.Add(time.Minute)
		}
	})
}

func TestVerdictsOfAnOpenTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.elector("a"), c.elector("b")
		claim := announced(t, a)

		early, soon := claim, *claim.Tick
		early.Tick = &soon
		soon.NotBefore = time.Now().Add(700 * time.Millisecond)
		if r := claimOne(a, early); r.Verdict != election.Early || !r.Until.Equal(soon.NotBefore) {
			t.Errorf("before its instant: %+v", r)
		}
		if r := claimOne(a, claim); r.Verdict != election.Granted {
			t.Fatalf("at its instant: %+v", r)
		}
		time.Sleep(time.Minute)
		next := claim
		later := *claim.Tick
		later.Previous, later.At = claim.Tick.At, claim.Tick.At.Add(time.Minute)
		next.ID, next.Tick = "next", &later
		if r := claimOne(b, next); r.Verdict != election.Held || r.Holder != "a" || !r.Until.After(time.Now()) {
			t.Errorf("while all slots are held: %+v", r)
		}
		later.IfHeld = "skipped overlap"
		if r := claimOne(b, next); r.Verdict != election.Settled || r.Outcome != "skipped overlap" {
			t.Errorf("one that skips: %+v", r)
		}
		next.ID = "of another"
		if r := claimOne(a, next); r.Verdict != election.Before || r.Outcome != "skipped overlap" {
			t.Errorf("the other one is told how it was decided: %+v", r)
		}
	})
}

func TestPastItsDeadlineATickIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.elector("a")
		claim := announced(t, a)
		claim.Tick.Deadline, claim.Tick.IfLate = claim.Tick.At.Add(time.Second), "missed late"
		time.Sleep(2 * time.Second)
		if r := claimOne(a, claim); r.Verdict != election.Settled || r.Outcome != "missed late" {
			t.Errorf("%+v", r)
		}
	})
}

// TestInspectWantsTheLockOfAJob: the lock of another name would be created, and would never expire.
func TestInspectWantsTheLockOfAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newCluster(t).elector("a")
		states := e.Inspect(t.Context(), []election.InspectRequest{{Lock: "report", Schedule: "s"}, {Lock: election.JobLock("report")}})
		if len(states) != 2 || states[0].Err == nil || states[1].Err == nil {
			t.Errorf("%+v", states)
		}
	})
}

func TestSilentServerMeansCannotTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.elector("a")
		claim := announced(t, a)
		c.server.Close()
		if r := claimOne(a, claim); r.Verdict != election.CannotTell || !errors.Is(r.Err, election.ErrUnknown) {
			t.Errorf("%+v", r)
		}
	})
}

func TestSameIDFindsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.elector("a")
		claim := announced(t, a)
		first, again := claimOne(a, claim), claimOne(a, claim)
		if again.Verdict != election.Granted || election.TermOf(again).Token() != election.TermOf(first).Token() {
			t.Errorf("first %+v, again %+v", first, again)
		}
	})
}

func TestReturnedTickIsOpenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.elector("a"), c.elector("b")
		claim := announced(t, a)
		if err := election.TermOf(claimOne(a, claim)).Undo(context.Background()); err != nil {
			t.Fatal(err)
		}
		claim.ID = "other"
		if r := claimOne(b, claim); r.Verdict != election.Granted {
			t.Errorf("%+v", r)
		}
	})
}

func TestDeadHolderIsNoticedAndBuried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		locks, die := c.locks("a")
		a, err := election.New(election.Config{Locks: locks})
		if err != nil {
			t.Fatal(err)
		}
		b := c.elector("b")
		claim := announced(t, a)
		claimOne(a, claim)
		die()
		time.Sleep(31 * time.Second)
		st := b.Inspect(context.Background(), []election.InspectRequest{{Lock: election.JobLock("report")}})[0]
		if len(st.Running) != 0 || len(st.Orphans) != 1 || st.Orphans[0].ID != "first" || st.Orphans[0].Holder != "a" ||
			!st.Orphans[0].Tick.Equal(claim.Tick.At) {
			t.Fatalf("after the lease: %+v", st)
		}
		if err := b.DeleteOrphans(context.Background(), "report", "first"); err != nil {
			t.Fatal(err)
		}
		if st := b.Inspect(context.Background(), []election.InspectRequest{{Lock: election.JobLock("report")}})[0]; len(st.Orphans) != 0 {
			t.Errorf("after the burial: %+v", st)
		}
	})
}

func TestGapIsSettledTogetherAndByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.elector("a"), c.elector("b")
		claim := announced(t, a)
		time.Sleep(10 * time.Minute)
		gap := election.InspectRequest{Lock: election.JobLock("report"), SettleThrough: claim.Tick.At.Add(5 * time.Minute), SettleDeadline: claim.Tick.At.Add(6 * time.Minute)}
		mine := a.Inspect(context.Background(), []election.InspectRequest{gap})[0]
		if !mine.Decided.Equal(gap.SettleThrough) || !mine.Before.Before(claim.Tick.At) {
			t.Errorf("the first to ask settles: %+v", mine)
		}
		if other := b.Inspect(context.Background(), []election.InspectRequest{gap})[0]; other.Before.Before(gap.SettleThrough) {
			t.Errorf("the second one finds it settled: %+v", other)
		}
		if r := claimOne(b, claim); r.Verdict != election.Before {
			t.Errorf("a tick of the gap: %+v", r)
		}
	})
}
