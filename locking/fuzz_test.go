package locking

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/lease"
)

// fuzzed is a server for the scripts: that in the process, or the Redis that CRONCLAVE_TEST_REDIS names.
func fuzzed(f *testing.F) *redis.Client {
	f.Helper()
	o := &redis.Options{}
	if url := os.Getenv("CRONCLAVE_TEST_REDIS"); url != "" {
		var err error
		if o, err = redis.ParseURL(url); err != nil {
			f.Fatal(err)
		}
	} else {
		s, err := embedded.Start(embedded.Config{})
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(s.Close)
		o.Addr = s.Addr()
	}
	o.ContextTimeoutEnabled, o.ReadTimeout = true, 20*time.Second
	rdb := redis.NewClient(o)
	f.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// named reports whether an error is one that an intact lock, or a damaged one, may give.
func named(err error) bool {
	if err == nil {
		return true
	}
	for _, known := range []error{ErrCorrupt, ErrLost, ErrReleased, ErrLimit} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// stored writes something into one of the keys of a lock.
func stored(ctx context.Context, rdb *redis.Client, key, kind, field, value string) {
	switch kind {
	case "string":
		rdb.Set(ctx, key, value, 0)
	case "list":
		rdb.LPush(ctx, key, value)
	case "score":
		rdb.ZAdd(ctx, key, redis.Z{Score: float64(len(value)), Member: field})
	default:
		rdb.HSet(ctx, key, field, value)
	}
}

// FuzzScripts has all scripts work on a lock of which two things in Redis are not as they were written: none
// hangs, and each names the damage. The observed state is arbitrary, too.
// Promise: damage
func FuzzScripts(f *testing.F) {
	rdb := fuzzed(f)
	keys := []string{"", "", "", "", ":ledger", ":orphans", ":dead:ID", ":queue", ":patience"}
	for n, value := range []string{"300000000", "9007199254740993", "-1", "nan", "1e308", "x", "id\no\n1\n1\n\n1\n\n", "1 done granted", "99 99;", "1 2 3;", "1,2,3,x,y"} {
		for i, field := range []string{"floor", "longest", "closed", "low", "used", "limit", "delay", "delayed", "e0", "r0", "t0", "paused", "outcomes", "followers", "settled", "iID", "aID", "wID", "came", "7"} {
			if testing.Short() && (n+i)%4 != 0 {
				continue
			}
			f.Add(uint8(i), "", field, value, uint8(i+1), "hash", field, value, int64(i)<<40, value)
		}
	}
	f.Add(uint8(0), "string", "", "1792000000000000 1 99999999999999999999 id\no", uint8(4), "list", "", "x", int64(-1), "!9007199254740991,0,0,x,y;1 1 part 0")
	f.Add(uint8(7), "score", "ID", "x", uint8(8), "score", "ID", "x", int64(1)<<62, ";;;")
	f.Fuzz(func(t *testing.T, key1 uint8, kind1, field1, value1 string, key2 uint8, kind2, field2, value2 string, witnessed int64, ledger string) {
		if len(value1)+len(value2)+len(ledger)+len(field1)+len(field2) > 1<<16 {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		c, err := New(Config{Redis: rdb, Prefix: "fuzz:" + rand.Text()[:8] + ":", Owner: "o", Timeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, permanent := range []bool{true, false} {
			lock := map[bool]string{true: "job", false: "plain"}[permanent]
			c.requests.Inspect(ctx, []lease.InspectRequest{{Lock: lock, Permanent: permanent, Schedule: "s"}})
			a := c.requests.Acquire(ctx, lease.Request{Lock: lock, Permanent: permanent, Trigger: "t", Slots: 2})
			if a.Verdict != lease.Granted {
				t.Fatalf("%q, %v", a.Verdict, a.Err)
			}
			for _, s := range []struct {
				key                uint8
				kind, field, value string
			}{{key1, kind1, field1, value1}, {key2, kind2, field2, value2}} {
				key := strings.ReplaceAll(keys[int(s.key)%len(keys)], "ID", a.ID)
				stored(ctx, rdb, c.lockKey(lock)+key, s.kind, strings.ReplaceAll(s.field, "ID", a.ID), s.value)
			}
			k, _ := c.observed.Last(lock)
			k.Floor, k.Longest, k.Low, k.Ledger = witnessed, witnessed, witnessed, ledger
			c.observed.Set(lock, k)
			for what, err := range askAll(ctx, c, lock, permanent, a) {
				if !named(err) {
					t.Errorf("%s of the %s lock: %v", what, lock, err)
				}
			}
			if keys := rdb.Keys(ctx, c.cfg.Prefix+"*").Val(); len(keys) > 0 {
				rdb.Del(ctx, keys...)
			}
		}
	})
}

// askAll asks everything that there is to ask of a lock.
func askAll(ctx context.Context, c *Client, lock string, permanent bool, held lease.Result) map[string]error {
	now, _ := c.requests.EstimatedTime()
	tick := &lease.Tick{At: now.Truncate(time.Second), Previous: now.Add(-time.Hour), Schedule: "s", KeepOutcome: true, IfHeld: "skipped"}
	r := lease.Request{Lock: lock, Permanent: permanent, Slots: 2, AnyLimit: true, Trigger: "t"}
	again, claim, adopts, plain := r, r, r, lease.Request{Lock: lock, Permanent: permanent, AnyLimit: true}
	again.ID, claim.Tick, adopts.Adopt = held.ID, tick, "other"
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	errs := map[string]error{
		"acquire":   c.requests.Acquire(ctx, r).Err,
		"ask again": c.requests.Acquire(ctx, again).Err,
		"claim":     c.requests.Acquire(ctx, claim).Err,
		"adopt":     c.requests.Acquire(ctx, adopts).Err,
		"as plain":  c.requests.Acquire(ctx, plain).Err,
		"look": c.requests.Inspect(ctx, []lease.InspectRequest{{Lock: lock, Permanent: permanent, Schedule: "s2", Follower: "f", Used: now.Add(-time.Hour),
			SettleThrough: now.Add(-time.Minute), SettleOutcome: "missed"}})[0].Err,
		"stop":      c.requests.Stop(ctx, []lease.StopRequest{{Lock: lock, Permanent: permanent, Reason: "r", Tick: tick.At, From: now, Slots: 1}})[0].Err,
		"pause":     c.requests.Pause(ctx, []lease.PauseRequest{{Lock: lock, Permanent: permanent, Outcome: "skipped"}})[0].Err,
		"end well":  held.Run.MarkSucceeded(ctx, true),
		"give back": held.Run.Undo(ctx),
	}
	if _, err := c.requests.Remove(ctx, []string{lock}, now); err != nil {
		errs["remove"] = err
	}
	if !permanent {
		lease, err := c.Semaphore(lock, 2).Acquire(short)
		if err == nil {
			err = lease.Release(ctx)
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		errs["wait"] = err
	}
	return errs
}

// FuzzFence has a fence work on stored values that no client has written.
// Promise: damage
func FuzzFence(f *testing.F) {
	rdb := fuzzed(f)
	for _, s := range []string{"", "x", "9007199254740991", "99999999999999999999", "-1", "nan", "0x10", "1e15"} {
		f.Add("string", s, int64(1))
		f.Add("hash", s, int64(1<<53-1))
	}
	f.Fuzz(func(t *testing.T, kind, value string, token int64) {
		c, err := New(Config{Redis: rdb, Prefix: "fuzz:" + rand.Text()[:8] + ":", Timeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		defer rdb.Del(t.Context(), c.lockKey("r")+":fence")
		stored(t.Context(), rdb, c.lockKey("r")+":fence", kind, "x", value)
		err = c.Fence("r").Pass(t.Context(), Token(token))
		if lease.CheckToken(Token(token)) == nil && !named(err) && !errors.Is(err, ErrStale) && !errors.Is(err, ErrAhead) {
			t.Errorf("%v", err)
		}
	})
}
