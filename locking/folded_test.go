package locking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const foldedLease = time.Minute

// folded makes a lock that is folded and free, which the client knows, and whose scripts the server has.
func (w *wire) folded(c *Client, lock string) {
	w.Helper()
	for range 2 {
		w.release(w.lock(c, lock, foldedLease))
		w.pass(time.Millisecond)
	}
	if !w.isFolded(c, lock) {
		w.Fatal("the lock is not folded")
	}
}

// isFolded tells whether the server has a lock as a string.
func (w *wire) isFolded(c *Client, lock string) bool {
	w.Helper()
	kind, err := c.cfg.Redis.Type(w.Context(), c.key(lock)).Result()
	if err != nil {
		w.Fatal(err)
	}
	return kind == "string"
}

// lockFolded takes a lock that is folded, and stays so.
func (w *wire) lockFolded(c *Client, lock string) *Lease {
	w.Helper()
	l := w.lock(c, lock, foldedLease)
	if l.fold == nil || !w.isFolded(c, lock) {
		w.Fatal("it was not granted as a folded lock")
	}
	return l
}

func TestFoldedLock(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{Owner: "us"})
		defer closeAll()
		w.folded(c, "x")
		first := w.lockFolded(c, "x")
		if a := c.Acquire(w.Context(), Request{Lock: "x"}); a.Verdict != Held || a.Holder != "us" {
			w.Errorf("while it is held: %q by %q, %v", a.Verdict, a.Holder, a.Err)
		}
		rows := w.rows("x") // which unfolds it
		if len(rows) != 1 || rows[0].ID != first.ID() || rows[0].Token != first.Token() || rows[0].Owner != "us" ||
			rows[0].Expiry.Sub(fromMicros(int64(first.Token()))) != foldedLease {
			w.Errorf("rows %+v of the lease %s, %d", rows, first.ID(), first.Token())
		}
		w.release(first)
		w.pass(time.Millisecond)
		second := w.lockFolded(c, "x")
		if second.Token() <= first.Token() {
			w.Errorf("token %d after %d", second.Token(), first.Token())
		}
		w.pass(5 * time.Second)
		w.release(second)
		if life := c.cfg.Redis.PTTL(w.Context(), c.key("x")).Val(); life < c.cfg.Idle || life > c.cfg.Idle+foldedLease || !w.isFolded(c, "x") {
			w.Errorf("it is remembered for %v", life)
		}
	})
}

// The keeper renews a lease of a folded lock as any other.
func TestFoldedLockIsRenewed(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.folded(c, "x")
		l := w.lockFolded(c, "x")
		w.pass(3 * foldedLease)
		if rows := w.rows("x"); l.Context().Err() != nil || len(rows) != 1 || rows[0].Token != l.Token() {
			w.Errorf("after three leases: %v, rows %+v", context.Cause(l.Context()), rows)
		}
		w.release(l)
		w.pass(time.Millisecond)
		w.release(w.lockFolded(c, "x"))
	})
}

// What renews a lease may arrive after its release, which therefore leaves a tombstone: also where it was to tell of another attempt.
func TestFoldedLockOfAnotherAttempt(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.folded(c, "x")
		l := w.lockFolded(c, "x")
		w.fail("mute")
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if _, err := l.NextAttempt(ctx); !errors.Is(err, ErrUnknown) {
			w.Errorf("to a server that does not answer: %v", err)
		}
		w.fail()
		w.release(l)
		if n := c.cfg.Redis.Exists(w.Context(), tombstone(c.key("x"), l.ID())).Val(); n != 1 {
			w.Error("no tombstone")
		}
	})
}

// Who dies with a folded lock in hand keeps it for the rest of the lease, and no longer.
func TestFoldedLockRunsOut(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.folded(c, "x")
		other, closeOther := (&wire{T: w.T, server: w.server, start: w.start}).client(Config{})
		defer closeOther()
		w.release(w.lock(other, "x", foldedLease))
		w.pass(time.Millisecond)
		dead := w.lockFolded(c, "x")
		w.fail("mute")
		w.pass(foldedLease - time.Second)
		if a := other.Acquire(w.Context(), Request{Lock: "x"}); a.Verdict != Held {
			w.Errorf("before the end: %q", a.Verdict)
		}
		w.pass(2 * time.Second)
		if l := w.lock(other, "x", foldedLease); l.Token() <= dead.Token() || dead.Context().Err() == nil {
			w.Errorf("token %d after %d, whose holder has %v", l.Token(), dead.Token(), dead.Context().Err())
		}
		w.fail()
	})
}

// A first request that arrives after it was withdrawn, or too late, leaves no ghost.
func TestFoldedGrantThatArrivesLate(t *testing.T) {
	for name, late := range map[string]func(w *wire, c *Client, r Request){
		"after the withdrawal": func(w *wire, c *Client, r Request) {
			if _, err := c.release(w.Context(), r.withdrawal()); err != nil {
				w.Fatal(err)
			}
			w.folded(c, "x") // by others, meanwhile
		},
		"too late": func(w *wire, _ *Client, _ Request) { w.pass(2 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *wire) {
				c, closeAll := w.client(Config{})
				defer closeAll()
				w.folded(c, "x")
				r := Request{Lock: "x", Lease: foldedLease}.withDefaults()
				k := c.foldedGrant(r, c.seen.of("x", c.cfg.Clock, c.cfg.Idle))
				micros, _ := c.servers.only.at(c.cfg.Clock())
				cmd := k.command(w.Context(), false, micros+c.cfg.Timeout.Microseconds())
				late(w, c, r)
				if err := c.cfg.Redis.Process(w.Context(), cmd); err != nil {
					w.Fatal(err)
				}
				if rows := w.rows("x"); len(rows) != 0 {
					w.Errorf("it is held: %+v", rows)
				}
			})
		})
	}
}

// A server that fell back to a folded lock of before is not believed: living holders come first, and tokens grow.
func TestFoldedLockOfBefore(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.folded(c, "x")
		before := c.cfg.Redis.Get(w.Context(), c.key("x")).Val()
		l := w.lockFolded(c, "x")
		if err := c.cfg.Redis.Set(w.Context(), c.key("x"), before, time.Hour).Err(); err != nil {
			w.Fatal(err)
		}
		if a := c.Acquire(w.Context(), Request{Lock: "x"}); a.Verdict != Closed {
			w.Errorf("a grant that is forgotten: %q, %v", a.Verdict, a.Err)
		}
		w.pass(foldedLease / 2) // the holder has put its row back
		if rows := w.rows("x"); l.Context().Err() != nil || len(rows) != 1 || rows[0].Token != l.Token() {
			w.Errorf("%v, rows %+v", context.Cause(l.Context()), rows)
		}
	})
}

// A lock that has anything else to say is not folded.
func TestWhatIsNotFolded(t *testing.T) {
	for field, value := range map[string]string{"paused": "1,2,3,paused", "low": "12", "delay": "1000000", "r1": "a row"} {
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{})
			defer closeAll()
			l := w.lock(c, "x", foldedLease)
			if err := c.cfg.Redis.HSet(w.Context(), c.key("x"), field, value).Err(); err != nil {
				w.Fatal(err)
			}
			w.release(l)
			if kept := c.cfg.Redis.HGet(w.Context(), c.key("x"), field).Val(); kept != value {
				w.Errorf("%s is %q now", field, kept)
			}
		})
	}
}

// A release whose reply is lost is one all the same, and one of a lock that was forgotten is none.
func TestFoldedReleaseWithoutReply(t *testing.T) {
	for _, retries := range []int{-1, 3} {
		t.Run(fmt.Sprint(retries, " retries"), func(t *testing.T) {
			inBubble(t, func(w *wire) {
				c, closeAll := w.client(Config{})
				defer closeAll()
				r := w.redis(retries)
				defer r.Close()
				c.servers.single = r
				w.folded(c, "x")
				l := w.lockFolded(c, "x")
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
			w.folded(c, "x")
			l := w.lockFolded(c, "x")
			c.cfg.Redis.FlushAll(w.Context())
			if err := l.Release(w.Context()); !errors.Is(err, ErrLost) {
				w.Errorf("released: %v", err)
			}
		})
	})
}

// To release again a lease of which it is not known whether it was released is no error, nor is it to release one twice at once.
func TestFoldedReleaseAgain(t *testing.T) {
	t.Run("unheard", func(t *testing.T) {
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{})
			defer closeAll()
			w.folded(c, "x")
			l := w.lockFolded(c, "x")
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
			w.folded(c, "x")
			l := w.lockFolded(c, "x")
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

// What was granted without a reply is found again by the same id.
func TestFoldedGrantWithoutReply(t *testing.T) {
	for _, retries := range []int{-1, 3} {
		t.Run(fmt.Sprint(retries, " retries"), func(t *testing.T) {
			inBubble(t, func(w *wire) {
				c, closeAll := w.client(Config{})
				defer closeAll()
				r := w.redis(retries)
				defer r.Close()
				c.servers.single = r
				w.folded(c, "x")
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

// Requests for folded locks travel together, and each fares by itself: here every third lock is held.
func TestFoldedLocksTravelTogether(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		const locks = 48
		name := func(i int) string { return fmt.Sprint("x", i) }
		for i := range locks {
			w.folded(c, name(i))
		}
		for i := 0; i < locks; i += 3 {
			w.lockFolded(c, name(i))
		}
		w.slow(10 * time.Millisecond)
		w.sent()
		leases := make([]*Lease, locks)
		var callers sync.WaitGroup
		for i := range locks {
			callers.Go(func() {
				lease, ok, err := c.Mutex(name(i), WithLease(foldedLease)).TryLock(w.Context())
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
			if i%3 != 0 && (l == nil || l.fold == nil) {
				w.Fatalf("lock %d was not granted as a folded one", i)
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

// Of requests for one lock that travel together one is granted.
func TestFoldedLockIsAskedForTwice(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.folded(c, "x")
		know, _ := c.seen.remembers("x")
		var calls []call
		for _, id := range []string{"one", "other"} {
			r := Request{Lock: "x", ID: id, Lease: foldedLease}.withDefaults()
			calls = append(calls, c.foldedGrant(r, know))
		}
		w.sent()
		replies := c.send(w.Context(), calls)
		if trips := len(w.sent()); trips != 1 {
			w.Errorf("%d commands for both", trips)
		}
		if replies[0].verdict != "granted" || replies[1].verdict != notFolded {
			w.Errorf("%+v", replies)
		}
		if rows := w.rows("x"); len(rows) != 1 || rows[0].ID != "one" {
			w.Errorf("rows %+v", rows)
		}
	})
}

// A key of something else is left alone, whatever the client thinks of it.
func TestFoldedKeyOfSomethingElse(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		w.folded(c, "x")
		for _, overwrite := range []func(r redis.UniversalClient, key string) error{
			func(r redis.UniversalClient, key string) error { return r.Set(w.Context(), key, "theirs", 0).Err() },
			func(r redis.UniversalClient, key string) error {
				return errors.Join(r.Del(w.Context(), key).Err(), r.LPush(w.Context(), key, "theirs").Err())
			},
		} {
			if err := overwrite(c.cfg.Redis, c.key("x")); err != nil {
				w.Fatal(err)
			}
			if a := c.Acquire(w.Context(), Request{Lock: "x"}); a.Verdict != Unknown || !errors.Is(a.Err, ErrRefused) {
				w.Errorf("%q, %v", a.Verdict, a.Err)
			}
		}
	})
}
