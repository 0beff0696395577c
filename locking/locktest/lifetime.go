package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

func lifetime() []theorem {
	return []theorem{
		{"PlainLocksExpireWhenIdle", plainExpire, memory},
		{"PermanentLocksStay", permanentStay, nothing},
		{"HeldLockDoesNotExpireBeforeItsLease", heldStays, nothing},
		{"IdleLockThatExpiredWasNotForgotten", idleExpired, memory},
		{"KeyOfSomethingElseIsNamed", foreignKey, memory},
	}
}

func batches() []theorem {
	return []theorem{
		{"BatchAnswersEachRequestInOrder", batch, nothing},
		{"BatchOutlivesScriptFlush", scriptFlush, nothing},
	}
}

func foreignKey(b *bench) {
	if err := b.rdb.Set(b.ctx, b.base(), "an application's", 0).Err(); err != nil {
		b.Fatal(err)
	}
	a := b.a.Engine().Acquire(b.ctx, lease.Request{Lock: lock})
	if a.Err == nil || !strings.Contains(a.Err.Error(), b.base()) {
		b.Errorf("%s: %v", a.Verdict, a.Err)
	}
	if value := b.rdb.Get(b.ctx, b.base()).Val(); value != "an application's" {
		b.Errorf("it is now %q", value)
	}
}

// lives returns how long each key of the lock lives on; -1 is for ever. Keys that are not there are left out.
func lives(b *bench) map[string]time.Duration {
	b.Helper()
	lives := map[string]time.Duration{}
	for _, key := range b.keys() {
		left, err := b.rdb.PTTL(b.ctx, key).Result()
		if err != nil {
			b.Fatal(err)
		}
		if left != -2 {
			lives[key] = left
		}
	}
	return lives
}

func plainExpire(b *bench) {
	all := func(step string) {
		b.Helper()
		for key, left := range lives(b) {
			if left < 0 || left > 2*long {
				b.Errorf("%s: %s lives for %v", step, key, left)
			}
		}
	}
	l := b.wins(b.a, lease.Request{Lease: renewing})
	all("grant")
	b.gets(b.b, lease.Request{}, lease.Held)
	all("held")
	b.forget()
	b.gets(b.b, lease.Request{}, lease.Closed)
	all("forgotten")
	heldAgain(b, l)
	all("put back")
	b.release(l)
	all("released")
	b.forget()
	t := b.tick(1)
	a := b.a.Engine().Acquire(b.ctx, lease.Request{Lock: lock, Tick: t})
	b.wants(a, lease.Closed)
	b.open()
	b.wants(b.a.Engine().Acquire(b.ctx, lease.Request{Lock: lock, Tick: t}), lease.Decided)
	all("tick of a schedule that begins")
	b.set("since", 0)
	t.Deadline, t.IfLate = b.now().Add(-time.Minute), "late"
	b.wants(b.a.Engine().Acquire(b.ctx, lease.Request{Lock: lock, Tick: t}), lease.Settled)
	all("settled")
	b.look(b.a, lease.InspectRequest{Schedule: "another"})
	all("announced")
	if len(lives(b)) == 0 {
		b.Error("nothing was there")
	}
}

func permanentStay(b *bench) {
	b.release(b.wins(b.a, lease.Request{})) // plain at first
	b.release(b.wins(b.a, lease.Request{Permanent: true}))
	b.known()
	runs(b, b.a, 1)
	b.release(b.wins(b.b, lease.Request{})) // a plain request of another client must not make the ledger mortal
	lives := lives(b)
	if len(lives) == 0 {
		b.Fatal("nothing is there")
	}
	for key, left := range lives {
		if left != -1 {
			b.Errorf("%s lives for %v", key, left)
		}
	}
}

func heldStays(b *bench) {
	const length = 5 * time.Hour // far longer than a client remembers an idle lock
	l := b.wins(b.a, lease.Request{Lease: length, Slots: 2})
	short := b.wins(b.b, lease.Request{Slots: 2})
	b.release(short)
	for key, left := range lives(b) {
		if left < length {
			b.Errorf("%s lives for %v, the lease for %v", key, left, l.Length())
		}
	}
}

// A server that dropped a lock because it was idle has forgotten nothing. Looking at a lock does not use it.
func idleExpired(b *bench) {
	const idle = 4 * long  // more than the lease keeps it for
	var local atomic.Int64 // the client's clock
	c, err := locking.New(locking.Config{Redis: b.rdb, Prefix: b.prefix, Timeout: timeout, Idle: idle,
		Clock: func() time.Duration { return time.Duration(local.Load()) }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	b.release(b.wins(c, lease.Request{}))
	for range 3 {
		local.Add(int64(idle / 5))
		b.look(c, lease.InspectRequest{})
	}
	b.forget() // as it does after that time
	b.wins(c, lease.Request{})
}

func batch(b *bench) {
	locks := 300
	if b.onQuorum() { // a busy machine that has all servers in one process answers no more than this in time
		locks = 60
	}
	var requests []lease.Request
	for i := range locks {
		requests = append(requests, lease.Request{Lock: fmt.Sprint("job-", i), Lease: long})
	}
	requests = append(requests, requests[7], lease.Request{Lock: "x{"}, requests[8])
	requests[locks].ID = "again"
	answers := b.a.Engine().AcquireAll(b.ctx, requests)
	for i, a := range answers[:locks] {
		b.wants(a, lease.Granted)
		if a.ID == "" || a.Run.ID() != a.ID {
			b.Errorf("request %d: id %q of lease %q", i, a.ID, a.Run.ID())
		}
	}
	b.wants(answers[locks], lease.Held)
	b.wants(answers[locks+1], lease.Unknown)
	b.wants(answers[locks+2], lease.Held)
	if err := answers[locks+1].Err; err == nil || errors.Is(err, locking.ErrUnknown) {
		b.Errorf("a request that can't be valid: %v", err)
	}
	if n := len(b.a.Engine().AcquireAll(b.ctx, nil)) + len(b.a.Engine().Inspect(b.ctx, nil)); n != 0 {
		b.Errorf("%d answers to nothing", n)
	}
}

func scriptFlush(b *bench) {
	var requests []lease.Request
	for i := range 50 {
		requests = append(requests, lease.Request{Lock: fmt.Sprint("job-", i), Lease: long})
	}
	flush := func() {
		b.Helper()
		var err error
		for _, node := range b.nodes {
			if cluster, ok := node.(*redis.ClusterClient); ok {
				err = errors.Join(err, cluster.ForEachMaster(b.ctx, flushNode))
			} else {
				err = errors.Join(err, node.ScriptFlush(b.ctx).Err())
			}
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	flush()
	leases := map[locking.Token]bool{}
	for _, a := range b.a.Engine().AcquireAll(b.ctx, requests) {
		b.wants(a, lease.Granted)
		leases[a.Run.Token()] = true
	}
	flush()
	held := b.b.Engine().AcquireAll(b.ctx, requests)
	if i := slices.IndexFunc(held, func(a lease.Result) bool { return a.Verdict != lease.Held }); i >= 0 {
		b.wants(held[i], lease.Held)
	}
	flush()
	for i, s := range b.b.Engine().Inspect(b.ctx, []lease.InspectRequest{{Lock: "job-0"}, {Lock: "job-1"}}) {
		if s.Err != nil || len(s.Running) != 1 || !leases[s.Running[0].Token] {
			b.Errorf("lock %d: %+v", i, s)
		}
	}
}

func flushNode(ctx context.Context, node *redis.Client) error { return node.ScriptFlush(ctx).Err() }

func removing() []theorem {
	return []theorem{
		{"RemovedLockLeavesNothingAndItsTicksStayDecided", removed, memory}, // Promise: P1
		{"LockThatWasUsedSinceIsNotRemoved", usedSince, memory},
		{"HeldLockIsNotRemoved", heldIsKept, memory},           // Promise: P3
		{"LockWithAnOrphanIsNotRemoved", orphanIsKept, memory}, // Promise: P6
		{"PausedLockIsNotRemoved", pauseIsKept, memory},        // Promise: P6
	}
}

// removes asks for the removal of the lock, and fails the test unless it does as wanted.
func removes(b *bench, unusedSince time.Time, want bool) {
	b.Helper()
	got, err := b.b.Engine().Remove(b.ctx, []string{lock, "never"}, unusedSince)
	if err != nil || got[0] != want || !got[1] {
		b.Fatalf("removed: %v, %v; want %v", got, err, want)
	}
	if n := b.rdb.Exists(b.ctx, b.keys()[0]).Val(); n == 1 == want {
		b.Errorf("%d keys are left", n)
	}
}

func removed(b *bench) {
	b.known()
	runs(b, b.a, 1)
	runs(b, b.a, 4) // out of turn: the ledger has an entry
	removes(b, b.now(), true)
	if n := b.rdb.Exists(b.ctx, b.keys()...).Val(); n != 0 {
		b.Errorf("%d keys are left", n)
	}
	newcomer := b.client("newcomer")
	for _, c := range []*locking.Client{newcomer, b.b} { // the client that has removed it holds nothing against the server
		b.gets(c, lease.Request{Tick: b.tick(1)}, lease.Decided)
		b.gets(c, lease.Request{Tick: b.tick(2)}, lease.Decided)
	}
	b.gets(b.a, lease.Request{Tick: b.tick(4)}, lease.Closed) // a client that has not still knows the lock
}

func usedSince(b *bench) {
	b.known()
	before := b.now()
	removes(b, before.Add(-time.Minute), true)
	b.known()
	runs(b, b.a, 1)
	removes(b, before, false)
	removes(b, b.now(), true)
}

func heldIsKept(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{Tick: b.tick(1), Trigger: "schedule"})
	removes(b, b.now(), false)
	b.release(l)
	removes(b, b.now(), true)
}

func orphanIsKept(b *bench) {
	b.known()
	died(b, "dead", 1)
	removes(b, b.now(), false)
	if s := b.state(); len(s.Orphans) != 1 {
		b.Fatalf("orphans: %+v", s.Orphans)
	}
	if err := b.b.Engine().DeleteOrphans(b.ctx, lock, "dead"); err != nil {
		b.Fatal(err)
	}
	removes(b, b.now(), true)
}

// pauseIsKept until it is over, also where only the client that removes the lock knows of it.
func pauseIsKept(b *bench) {
	b.known()
	pause(b, b.a, lease.PauseRequest{})
	removes(b, b.now(), false)
	pause(b, b.a, lease.PauseRequest{For: time.Hour})
	removes(b, b.now(), false)
	b.forget()
	removes(b, b.now(), false)
	if s := b.state(); !s.Pause.On(s.Now) {
		b.Errorf("the lock tells %+v", s.Pause)
	}
	pause(b, b.a, lease.PauseRequest{End: true})
	removes(b, b.now(), true)
}

func updating() []theorem {
	return []theorem{
		{"UpdatesAreNotLost", updatesCount, transactions},
		{"UpdateIsTriedAgainAfterAConflict", updateConflicts, transactions},
		{"UpdateThatIsRefusedIsNotTriedAgain", updateRefused, transactions},
	}
}

func numberKey(b *bench) string { return b.prefix + "{update}:n" }

// increments is a change that reads and writes two numbers; then runs in between.
func increments(b *bench, then func()) func(tx *locking.Tx) error {
	return func(tx *locking.Tx) error {
		n, err := tx.Read.Get(b.ctx, numberKey(b)).Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		then()
		tx.Write.Set(b.ctx, numberKey(b), n+1, 0)
		tx.Write.Set(b.ctx, numberKey(b)+":too", n+1, 0)
		return nil
	}
}

func numbers(b *bench) (n, too int) {
	b.Helper()
	n, err := b.rdb.Get(b.ctx, numberKey(b)).Int()
	too, err2 := b.rdb.Get(b.ctx, numberKey(b)+":too").Int()
	if err := errors.Join(err, err2); err != nil {
		b.Fatal(err)
	}
	return n, too
}

func updatesCount(b *bench) {
	var all sync.WaitGroup
	for _, c := range []*locking.Client{b.a, b.a, b.b, b.b} {
		all.Go(func() {
			for range 10 {
				if err := c.Update(b.ctx, []string{numberKey(b)}, increments(b, func() {})); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n, too := numbers(b); n != 40 || too != 40 {
		b.Errorf("%d and %d after 40 updates", n, too)
	}
}

func updateConflicts(b *bench) {
	tries := 0
	err := b.a.Update(b.ctx, []string{numberKey(b) + ":too", numberKey(b)}, increments(b, func() {
		if tries++; tries <= 3 {
			b.rdb.Incr(b.ctx, numberKey(b))
		}
	}))
	if n, too := numbers(b); err != nil || tries != 4 || n != 4 || too != 4 {
		b.Errorf("%d tries, %d and %d, %v", tries, n, too, err)
	}
}

func updateRefused(b *bench) {
	tries := 0
	err := b.a.Update(b.ctx, []string{numberKey(b)}, func(tx *locking.Tx) error {
		tries++
		tx.Write.Set(b.ctx, numberKey(b), 1, 0)
		tx.Write.Do(b.ctx, "HSET", numberKey(b)) // which lacks its arguments
		return nil
	})
	if err == nil || errors.Is(err, locking.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) || tries != 1 || !strings.Contains(err.Error(), "wrong number") {
		b.Errorf("%d tries, %v", tries, err)
	}
	if n, err := b.rdb.Exists(b.ctx, numberKey(b)).Result(); n != 0 || err != nil {
		b.Errorf("it was done in part: %d, %v", n, err)
	}
}
