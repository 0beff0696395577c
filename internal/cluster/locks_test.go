package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

// run has a replica claim a run of a job, outside the schedule, and a slot of the pool for it, if there is one.
func (c *cluster) run(t *testing.T, e *election.Elector, job, id string) (inPool bool) {
	t.Helper()
	a := e.Claim(t.Context(), []election.Claim{{Lock: election.JobLock(job), ID: id, Trigger: "manual", Lease: time.Minute}})[0]
	if a.Verdict != election.Granted {
		t.Fatal(a.Verdict, a.Err)
	}
	_, inPool, err := e.TryAcquirePool(t.Context(), election.Entry{Pool: "warehouse", Slots: 1, Lease: time.Minute, Run: id})
	if err != nil {
		t.Fatal(err)
	}
	return inPool
}

// A status names the runs that hold a pool and those that wait for it, and gives advice. Of a lock it has the holders, and the processes that
// wait without a place in its queue, too.
func TestPoolsAndLocksOfAStatus(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "export", Pool: "warehouse", PoolSlots: 1}, journal.JobInfo{Name: "load", Pool: "warehouse", PoolSlots: 1}, journal.JobInfo{Name: "other"})
	if !c.run(t, c.elector(t, "r1"), "export", "run1") || c.run(t, c.elector(t, "r2"), "load", "run2") {
		t.Fatal("the pool has one slot")
	}
	locks, err := locking.New(c.conn.LockConfig("default", "host (pid 1)"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	if a := locks.Engine().Acquire(t.Context(), lease.Request{Lock: PlainLock("deploy"), ID: "held", Slots: 2}); a.Verdict != lease.Granted {
		t.Fatal(a.Verdict, a.Err)
	}
	now := time.Now()
	for _, use := range []journal.LockUse{
		{ID: "held", Lock: "deploy", Slots: 2, Owner: "host (pid 1)", Since: now},
		{ID: "late", Lock: "deploy", Slots: 2, Owner: "host (pid 3)", Since: now.Add(-time.Second)},
		{ID: "early", Lock: "deploy", Slots: 2, Owner: "host (pid 2)", Since: now.Add(-time.Minute)},
		{ID: "pooled", Lock: "warehouse", Pool: true, Slots: 1, Owner: "host (pid 4)", Since: now.Add(-time.Hour)},
	} {
		if err := c.journal.NoteLock(t.Context(), use, now, now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	st, err := c.operator(t, Config{}).Status(t.Context(), StatusRequest{})
	if err != nil || len(st.Pools) != 1 || len(st.Locks) != 1 {
		t.Fatalf("%v, %+v", err, st)
	}
	pool, lock := st.Pools[0], st.Locks[0]
	if pool.Name != "warehouse" || pool.Slots != 1 || len(pool.Holders) != 1 || strings.Join(pool.Jobs, " ") != "export load" {
		t.Fatalf("%+v", pool)
	}
	if h := pool.Holders[0]; h.Owner != "r1" || h.Job != "export" || h.RunID != "run1" || h.Since == nil || time.Since(*h.Since).Abs() > time.Minute {
		t.Errorf("%+v", h)
	}
	if w := pool.Waiting; pool.Waiters != 2 || w[0].Owner != "host (pid 4)" || w[1].Owner != "r2" || w[1].Job != "load" || w[1].RunID != "run2" {
		t.Errorf("%+v", pool)
	}
	if w := lock.Waiting; lock.Name != "deploy" || len(lock.Holders) != 1 || lock.Holders[0].Owner != "host (pid 1)" || lock.Waiters != 2 ||
		w[0].Owner != "host (pid 2)" || w[1].Owner != "host (pid 3)" || lock.Full() {
		t.Errorf("%+v", lock)
	}
	var said string
	for _, p := range st.Problems {
		if p.Code == "pool_full" && p.Level == LevelAdvice && p.Since != nil {
			said = p.Message
		}
	}
	if !strings.HasPrefix(said, "pool warehouse is full: 2 wait for a slot, first host (pid 4); held by job export on r1; ") {
		t.Errorf("%q in %+v", said, st.Problems)
	}
}

// A process is listed while it uses a lock, but not before a second has passed.
func TestLockIsShownWhileItIsUsed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	clock := func() (time.Time, bool) { return time.Now(), true }
	use := journal.LockUse{ID: "id", Lock: "deploy", Slots: 1, Owner: "host"}
	listed := func() int {
		uses, err := c.journal.LockUses(context.Background(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return len(uses)
	}
	hide := ShowLock(c.journal, use, time.Minute, clock)
	if hide(); listed() != 0 {
		t.Error("a short use is listed")
	}
	hide = ShowLock(c.journal, use, time.Minute, clock)
	for deadline := time.Now().Add(20 * time.Second); listed() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not listed")
		}
	}
	if hide(); listed() != 0 {
		t.Error("still listed")
	}
}
