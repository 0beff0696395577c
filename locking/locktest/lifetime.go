package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease/engine"
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
	a := b.a.Acquire(b.ctx, engine.Request{Lock: lock})
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
	l := b.wins(b.a, engine.Request{Lease: renewing})
	all("grant")
	b.gets(b.b, engine.Request{}, engine.Held)
	all("held")
	b.forget()
	b.gets(b.b, engine.Request{}, engine.Closed)
	all("forgotten")
	heldAgain(b, l)
	all("put back")
	b.release(l)
	all("released")
	b.forget()
	t := b.tick(1)
	a := b.a.Acquire(b.ctx, engine.Request{Lock: lock, Tick: t})
	b.wants(a, engine.Closed)
	b.open()
	b.wants(b.a.Acquire(b.ctx, engine.Request{Lock: lock, Tick: t}), engine.Decided)
	all("tick of a schedule that begins")
	b.set("since", 0)
	t.Deadline, t.IfLate = b.now().Add(-time.Minute), "late"
	b.wants(b.a.Acquire(b.ctx, engine.Request{Lock: lock, Tick: t}), engine.Settled)
	all("settled")
	b.look(b.a, engine.InspectRequest{Schedule: "another"})
	all("announced")
	if len(lives(b)) == 0 {
		b.Error("nothing was there")
	}
}

func permanentStay(b *bench) {
	b.release(b.wins(b.a, engine.Request{})) // plain at first
	b.release(b.wins(b.a, engine.Request{Permanent: true}))
	b.known()
	runs(b, b.a, 1)
	b.release(b.wins(b.b, engine.Request{})) // a plain request of another client must not make the ledger mortal
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
	const lease = 5 * time.Hour // far longer than a client remembers an idle lock
	l := b.wins(b.a, engine.Request{Lease: lease, Slots: 2})
	short := b.wins(b.b, engine.Request{Slots: 2})
	b.release(short)
	for key, left := range lives(b) {
		if left < lease {
			b.Errorf("%s lives for %v, the lease for %v", key, left, l.Length())
		}
	}
}

// A server that dropped a lock because it was idle has forgotten nothing. Looking at a lock does not use it.
func idleExpired(b *bench) {
	const idle = 4 * long  // more than the lease keeps it for
	var local atomic.Int64 // the client's clock
	c, err := engine.New(engine.Config{Redis: b.rdb, Prefix: b.prefix, Timeout: timeout, Idle: idle,
		Clock: func() time.Duration { return time.Duration(local.Load()) }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	b.release(b.wins(c, engine.Request{}))
	for range 3 {
		local.Add(int64(idle / 5))
		b.look(c, engine.InspectRequest{})
	}
	b.forget() // as it does after that time
	b.wins(c, engine.Request{})
}

func batch(b *bench) {
	locks := 300
	if b.onQuorum() { // a busy machine that has all servers in one process answers no more than this in time
		locks = 60
	}
	var requests []engine.Request
	for i := range locks {
		requests = append(requests, engine.Request{Lock: fmt.Sprint("job-", i), Lease: long})
	}
	requests = append(requests, requests[7], engine.Request{Lock: "x{"}, requests[8])
	requests[locks].ID = "again"
	answers := b.a.AcquireAll(b.ctx, requests)
	for i, a := range answers[:locks] {
		b.wants(a, engine.Granted)
		if a.ID == "" || a.Lease.ID() != a.ID {
			b.Errorf("request %d: id %q of lease %q", i, a.ID, a.Lease.ID())
		}
	}
	b.wants(answers[locks], engine.Held)
	b.wants(answers[locks+1], engine.Unknown)
	b.wants(answers[locks+2], engine.Held)
	if err := answers[locks+1].Err; err == nil || errors.Is(err, engine.ErrUnknown) {
		b.Errorf("a request that can't be valid: %v", err)
	}
	if n := len(b.a.AcquireAll(b.ctx, nil)) + len(b.a.Inspect(b.ctx, nil)); n != 0 {
		b.Errorf("%d answers to nothing", n)
	}
}

func scriptFlush(b *bench) {
	var requests []engine.Request
	for i := range 50 {
		requests = append(requests, engine.Request{Lock: fmt.Sprint("job-", i), Lease: long})
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
	leases := map[engine.Token]bool{}
	for _, a := range b.a.AcquireAll(b.ctx, requests) {
		b.wants(a, engine.Granted)
		leases[a.Lease.Token()] = true
	}
	flush()
	held := b.b.AcquireAll(b.ctx, requests)
	if i := slices.IndexFunc(held, func(a engine.Answer) bool { return a.Verdict != engine.Held }); i >= 0 {
		b.wants(held[i], engine.Held)
	}
	flush()
	for i, s := range b.b.Inspect(b.ctx, []engine.InspectRequest{{Lock: "job-0"}, {Lock: "job-1"}}) {
		if s.Err != nil || len(s.Rows) != 1 || !leases[s.Rows[0].Token] {
			b.Errorf("lock %d: %+v", i, s)
		}
	}
}

func flushNode(ctx context.Context, node *redis.Client) error { return node.ScriptFlush(ctx).Err() }
