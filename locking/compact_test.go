package locking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	redisstore "github.com/cronclave/cronclave/internal/lease/redis"
)

const compactLease = time.Minute

// compact makes a lock that is compact and free, which the client knows, and whose scripts the server has.
func (w *wire) compact(c *Client, lock string) {
	w.Helper()
	for range 2 {
		w.release(w.lock(c, lock, compactLease))
		w.pass(time.Millisecond)
	}
	if !w.isCompact(c, lock) {
		w.Fatal("the lock is not compact")
	}
}

// isCompact reports whether the server has a lock as a string.
func (w *wire) isCompact(c *Client, lock string) bool {
	w.Helper()
	kind, err := c.cfg.Redis.Type(w.Context(), c.lockKey(lock)).Result()
	if err != nil {
		w.Fatal(err)
	}
	return kind == "string"
}

// compact reports whether the lease was granted as a compact one, and has not been renewed since.
func (l *Lease) compact() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.row.Grant.Ticket != nil && !l.renewed
}

// lockCompact takes a lock that is compact, and stays so.
func (w *wire) lockCompact(c *Client, lock string) *Lease {
	w.Helper()
	l := w.lock(c, lock, compactLease)
	if !l.compact() || !w.isCompact(c, lock) {
		w.Fatal("it was not granted as a compact lock")
	}
	return l
}

// TestCompactLock holds a lock in its compact form, and gives each grant of it a greater token.
// Promise: P3
func TestCompactLock(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{Owner: "us"})
		defer closeAll()
		w.compact(c, "x")
		first := w.lockCompact(c, "x")
		if a := c.requests.Acquire(w.Context(), lease.Request{Lock: "x"}); a.Verdict != lease.Held || a.Holder != "us" {
			w.Errorf("while it is held: %q by %q, %v", a.Verdict, a.Holder, a.Err)
		}
		rows := w.rows("x") // which expands it
		if len(rows) != 1 || rows[0].ID != first.ID() || rows[0].Token != first.Token() || rows[0].Holder != "us" ||
			rows[0].Expires.Sub(lease.FromMicros(int64(first.Token()))) != compactLease {
			w.Errorf("rows %+v of the lease %s, %d", rows, first.ID(), first.Token())
		}
		w.release(first)
		w.pass(time.Millisecond)
		second := w.lockCompact(c, "x")
		if second.Token() <= first.Token() {
			w.Errorf("token %d after %d", second.Token(), first.Token())
		}
		w.pass(5 * time.Second)
		w.release(second)
		if life := c.cfg.Redis.PTTL(w.Context(), c.lockKey("x")).Val(); life < c.cfg.Idle || life > c.cfg.Idle+compactLease || !w.isCompact(c, "x") {
			w.Errorf("it is remembered for %v", life)
		}
	})
}

// The keeper renews a lease of a compact lock as any other.
func TestCompactLockIsRenewed(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.compact(c, "x")
		l := w.lockCompact(c, "x")
		w.pass(3 * compactLease)
		if rows := w.rows("x"); l.Context().Err() != nil || len(rows) != 1 || rows[0].Token != l.Token() {
			w.Errorf("after three leases: %v, rows %+v", context.Cause(l.Context()), rows)
		}
		w.release(l)
		w.pass(time.Millisecond)
		w.release(w.lockCompact(c, "x"))
	})
}

// A renewal may arrive after the release of its lease, which therefore leaves a tombstone: also where the
// renewal was to count another attempt.
func TestCompactLockOfAnotherAttempt(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.compact(c, "x")
		l := w.lockCompact(c, "x")
		w.fail("mute")
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if _, err := runOf(l).NextAttempt(ctx); !errors.Is(err, ErrUnknown) {
			w.Errorf("to a server that does not answer: %v", err)
		}
		w.fail()
		w.release(l)
		if n := c.cfg.Redis.Exists(w.Context(), redisstore.Tombstone(c.lockKey("x"), l.ID())).Val(); n != 1 {
			w.Error("no tombstone")
		}
	})
}

// A holder that dies with a compact lock keeps it for the rest of the lease, and no longer.
// Promise: P3
func TestCompactLockRunsOut(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.compact(c, "x")
		other, closeOther := w.beside().client(Config{})
		defer closeOther()
		w.release(w.lock(other, "x", compactLease))
		w.pass(time.Millisecond)
		dead := w.lockCompact(c, "x")
		w.fail("mute")
		w.pass(compactLease - time.Second)
		if a := other.requests.Acquire(w.Context(), lease.Request{Lock: "x"}); a.Verdict != lease.Held {
			w.Errorf("before the end: %q", a.Verdict)
		}
		w.pass(2 * time.Second)
		if l := w.lock(other, "x", compactLease); l.Token() <= dead.Token() || dead.Context().Err() == nil {
			w.Errorf("token %d after %d, whose holder has %v", l.Token(), dead.Token(), dead.Context().Err())
		}
		w.fail()
	})
}

// A server that fell back to an earlier compact lock is not believed: living holders come first, and tokens grow.
// Promise: P4
func TestCompactLockOfBefore(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.compact(c, "x")
		before := c.cfg.Redis.Get(w.Context(), c.lockKey("x")).Val()
		l := w.lockCompact(c, "x")
		if err := c.cfg.Redis.Set(w.Context(), c.lockKey("x"), before, time.Hour).Err(); err != nil {
			w.Fatal(err)
		}
		if a := c.requests.Acquire(w.Context(), lease.Request{Lock: "x"}); a.Verdict != lease.Closed {
			w.Errorf("a grant that is forgotten: %q, %v", a.Verdict, a.Err)
		}
		w.pass(compactLease / 2) // the holder has put its row back
		if rows := w.rows("x"); l.Context().Err() != nil || len(rows) != 1 || rows[0].Token != l.Token() {
			w.Errorf("%v, rows %+v", context.Cause(l.Context()), rows)
		}
	})
}

// A lock with any other state is not compact.
// Promise: P6
func TestWhatIsNotCompact(t *testing.T) {
	for field, value := range map[string]string{"paused": "1,2,3,paused", "low": "12", "delay": "1000000", "r1": "a row"} {
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{})
			defer closeAll()
			l := w.lock(c, "x", compactLease)
			if err := c.cfg.Redis.HSet(w.Context(), c.lockKey("x"), field, value).Err(); err != nil {
				w.Fatal(err)
			}
			w.release(l)
			if kept := c.cfg.Redis.HGet(w.Context(), c.lockKey("x"), field).Val(); kept != value {
				w.Errorf("%s is %q now", field, kept)
			}
		})
	}
}

// A release whose reply is lost has taken effect all the same, and a release of a forgotten lock has none.
// Promise: P4
func TestCompactReleaseWithoutReply(t *testing.T) {
	for _, retries := range []int{-1, 3} {
		t.Run(fmt.Sprint(retries, " retries"), func(t *testing.T) {
			inBubble(t, func(w *wire) {
				c, closeAll := w.clientOf(w.redis(retries), Config{})
				defer closeAll()
				w.compact(c, "x")
				l := w.lockCompact(c, "x")
				w.cut(1)
				if err := l.Release(w.Context()); err != nil {
					w.Errorf("its connection broke: %v", err)
				}
				if rows := w.rows("x"); len(rows) != 0 {
					w.Errorf("rows %+v", rows)
				}
			})
		})
	}
	t.Run("forgotten", func(t *testing.T) {
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{})
			defer closeAll()
			w.compact(c, "x")
			l := w.lockCompact(c, "x")
			c.cfg.Redis.FlushAll(w.Context())
			if err := l.Release(w.Context()); !errors.Is(err, ErrLost) {
				w.Errorf("released: %v", err)
			}
		})
	})
}

// A second release of a lease is no error, neither after a lost reply nor at the same time.
// Promise: P4
func TestCompactReleaseAgain(t *testing.T) {
	t.Run("unheard", func(t *testing.T) {
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{})
			defer closeAll()
			w.compact(c, "x")
			l := w.lockCompact(c, "x")
			w.fail("deaf")
			if err := l.Release(w.Context()); !errors.Is(err, ErrUnknown) {
				w.Errorf("nobody answered: %v", err)
			}
			w.fail()
			w.pass(time.Minute) // it is tried on in the background, and the tombstone of that ends
			w.release(l)
			w.release(l)
		})
	})
	t.Run("at once", func(t *testing.T) {
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{})
			defer closeAll()
			w.compact(c, "x")
			l := w.lockCompact(c, "x")
			w.slow(100 * time.Millisecond)
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() { w.release(l) })
			}
			all.Wait()
			w.fail()
		})
	})
}

// A grant whose reply was lost is found again by the same id.
func TestCompactGrantWithoutReply(t *testing.T) {
	for _, retries := range []int{-1, 3} {
		t.Run(fmt.Sprint(retries, " retries"), func(t *testing.T) {
			inBubble(t, func(w *wire) {
				c, closeAll := w.clientOf(w.redis(retries), Config{})
				defer closeAll()
				w.compact(c, "x")
				w.cut(1)
				l, ok, err := c.Mutex("x").TryLock(w.Context())
				if !ok {
					w.Fatal(err)
				}
				if rows := w.rows("x"); len(rows) != 1 || rows[0].Token != l.Token() || rows[0].ID != l.ID() {
					w.Errorf("rows %+v, token %d", rows, l.Token())
				}
				w.release(l)
			})
		})
	}
}

// Requests for compact locks travel together, and each fares by itself: here every third lock is held.
func TestCompactLocksShareARoundTrip(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		const locks = 48
		name := func(i int) string { return fmt.Sprint("x", i) }
		for i := range locks {
			w.compact(c, name(i))
		}
		for i := 0; i < locks; i += 3 {
			w.lockCompact(c, name(i))
		}
		w.slow(10 * time.Millisecond)
		w.sent()
		leases := make([]*Lease, locks)
		var callers sync.WaitGroup
		for i := range locks {
			callers.Go(func() {
				lease, ok, err := c.Mutex(name(i), WithLease(compactLease)).TryLock(w.Context())
				if held := i%3 == 0; err != nil || ok == held {
					w.Errorf("lock %d: ok %v, %v", i, ok, err)
				}
				leases[i] = lease
			})
		}
		callers.Wait()
		if trips := len(w.sent()); trips > locks/4 {
			w.Errorf("%d locks took %d round trips", locks, trips)
		}
		for i, l := range leases {
			if i%3 != 0 && (l == nil || !l.compact()) {
				w.Fatalf("lock %d was not granted as a compact one", i)
			}
			if l != nil {
				callers.Go(func() { w.release(l) })
			}
		}
		callers.Wait()
		w.fail()
		for i := range locks {
			if n := len(w.rows(name(i))); n != 0 && i%3 != 0 {
				w.Errorf("lock %d is held", i)
			}
		}
	})
}

// A key of something else is left alone, whatever the client thinks of it.
func TestCompactKeyOfSomethingElse(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.compact(c, "x")
		for _, overwrite := range []func(r redis.UniversalClient, key string) error{
			func(r redis.UniversalClient, key string) error { return r.Set(w.Context(), key, "theirs", 0).Err() },
			func(r redis.UniversalClient, key string) error {
				return errors.Join(r.Del(w.Context(), key).Err(), r.LPush(w.Context(), key, "theirs").Err())
			},
		} {
			if err := overwrite(c.cfg.Redis, c.lockKey("x")); err != nil {
				w.Fatal(err)
			}
			if a := c.requests.Acquire(w.Context(), lease.Request{Lock: "x"}); a.Verdict != lease.Unknown || !errors.Is(a.Err, ErrRefused) {
				w.Errorf("%q, %v", a.Verdict, a.Err)
			}
		}
	})
}
