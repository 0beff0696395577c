package locking

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// A token whose reply was lost has an unknown outcome; asked again, it passes.
func TestFenceWithoutAReplyIsUnknownAndMayBeAskedAgain(t *testing.T) {
	for _, how := range []string{"deaf", "mute"} {
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{})
			defer closeAll()
			f := c.Fence("reports")
			if err := f.Pass(w.Context(), 5); err != nil {
				w.Fatal(err)
			}
			w.fail(how)
			began := time.Now()
			if err := f.Pass(w.Context(), 7); !errors.Is(err, ErrUnknown) || errors.Is(err, ErrStale) {
				w.Errorf("%s: %v", how, err)
			}
			if took := time.Since(began); took > time.Second {
				w.Errorf("%s: it took %v", how, took)
			}
			w.fail()
			w.pass(2 * time.Second)
			if err := f.Pass(w.Context(), 7); err != nil {
				w.Errorf("%s, asked again: %v", how, err)
			}
			if err := f.Pass(w.Context(), 6); !errors.Is(err, ErrStale) {
				w.Errorf("%s: a smaller one: %v", how, err)
			}
		})
	}
}

// A token counts once the replicas have it, else a failover would let smaller ones in. A refusal needs no
// replica.
// Promise: P4
func TestFencePassesOnlyWhatReplicasHave(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.acked()
		defer closeAll()
		f := c.Fence("reports")
		if err := f.Pass(w.Context(), 7); !errors.Is(err, ErrUnknown) {
			w.Errorf("no replica has it: %v", err)
		}
		if err := f.Pass(w.Context(), 6); !errors.Is(err, ErrStale) {
			w.Errorf("a smaller one: %v", err)
		}
		w.replicas(1)
		if err := f.Pass(w.Context(), 7); err != nil {
			w.Errorf("a replica has it: %v", err)
		}
	})
}

func TestFenceOfAClosedClient(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		f := c.Fence("reports")
		closeAll()
		if err := f.Pass(w.Context(), 7); !errors.Is(err, ErrClosed) {
			w.Error(err)
		}
	})
}

func TestFenceKeepsToItsContext(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		if err := c.Fence("reports").Pass(ctx, 7); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) {
			w.Error(err)
		}
	})
}

// increment is a change that reads and writes; then runs in between.
func increment(ctx context.Context, then func()) func(tx *Tx) error {
	return func(tx *Tx) error {
		n, err := tx.Read.Get(ctx, "n").Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		then()
		tx.Write.Set(ctx, "n", n+1, 0)
		return nil
	}
}

func nothing() {}

// number reads n over a wire of its own.
func (w *wire) number() int {
	w.Helper()
	r := w.beside().redis(-1)
	defer r.Close()
	n, err := r.Get(w.Context(), "n").Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		w.Fatal(err)
	}
	return n
}

func TestUpdatesAreNotLost(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for range 5 {
					if err := c.Update(w.Context(), []string{"n"}, increment(w.Context(), nothing)); err != nil {
						w.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := w.number(); n != 100 {
			w.Errorf("%d updates of 100", n)
		}
	})
}

func TestUpdateTriesAgainAfterAConflict(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		tries := 0
		err := c.Update(w.Context(), []string{"other", "n"}, increment(w.Context(), func() {
			if tries++; tries <= 3 {
				c.cfg.Redis.Incr(w.Context(), "n")
			}
		}))
		if err != nil || tries != 4 || w.number() != 4 {
			w.Errorf("%d tries, n is %d, %v", tries, w.number(), err)
		}
	})
}

// An update whose reply is lost is not repeated, by go-redis neither. The server may have done it, or it was
// about to be sent.
// Promise: P1
func TestUpdateWhoseReplyIsLostIsNotRepeated(t *testing.T) {
	for name, fault := range map[string]func(*wire){
		"deaf": func(w *wire) { w.fail("deaf") },
		"cut":  func(w *wire) { w.cut(1) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *wire) {
				r := w.redis(3)
				defer r.Close()
				c, err := New(Config{Redis: r, Clock: w.clock})
				if err != nil {
					w.Fatal(err)
				}
				defer c.Close()
				ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
				defer cancel()
				tries := 0
				err = c.Update(ctx, []string{"n"}, increment(w.Context(), func() { tries++; fault(w) }))
				if !errors.Is(err, ErrUnknown) || tries != 1 || w.number() > 1 || name == "deaf" && w.number() != 1 {
					w.Errorf("%d tries, n is %d, %v", tries, w.number(), err)
				}
				w.fail()
			})
		})
	}
}

func TestUpdateThatDoesNotArriveIsUnknown(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		began := time.Now()
		err := c.Update(w.Context(), []string{"n"}, increment(w.Context(), func() { w.fail("mute") }))
		if took := time.Since(began); !errors.Is(err, ErrUnknown) || took > 2*c.cfg.Timeout {
			w.Errorf("after %v: %v", took, err)
		}
		w.fail()
		if n := w.number(); n != 0 {
			w.Errorf("n is %d", n)
		}
	})
}

func TestUpdateWaitsForTheServer(t *testing.T) {
	for _, fault := range []string{"mute", "deaf"} {
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{})
			defer closeAll()
			w.fail(fault)
			time.AfterFunc(3500*time.Millisecond, func() { w.fail() })
			if err := c.Update(w.Context(), []string{"n"}, increment(w.Context(), nothing)); err != nil || w.number() != 1 {
				w.Errorf("n is %d, %v", w.number(), err)
			}
		})
	}
}

func TestUpdateEndsWithItsContext(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
		defer cancel()
		conflict := increment(w.Context(), func() { c.cfg.Redis.Incr(w.Context(), "n") })
		if err := c.Update(ctx, []string{"n"}, conflict); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknown) {
			w.Errorf("conflicts without end: %v", err)
		}
		before := w.number()
		ctx, stop := context.WithCancelCause(w.Context())
		enough := errors.New("enough")
		if err := c.Update(ctx, []string{"n"}, increment(w.Context(), func() { stop(enough) })); !errors.Is(err, enough) || w.number() != before {
			w.Errorf("ended before the write: %v, n is %d, was %d", err, w.number(), before)
		}
		if err := c.Update(ctx, []string{"n"}, func(*Tx) error { w.Error("tried"); return nil }); !errors.Is(err, enough) {
			w.Error(err)
		}
		w.fail("mute")
		ctx, cancel = context.WithTimeout(w.Context(), 5*time.Second)
		defer cancel()
		if err := c.Update(ctx, []string{"n"}, conflict); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknown) {
			w.Errorf("nothing was sent: %v", err)
		}
		w.fail()
	})
}

// A connection that went on watching would let the transactions of others fail.
func TestUpdateThatIsGivenUpWatchesNoMore(t *testing.T) {
	enough := errors.New("enough")
	for _, end := range []error{enough, nil} { // nil: nothing is queued
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{})
			defer closeAll()
			other := w.redis(-1)
			defer other.Close()
			if err := c.Update(w.Context(), []string{"n"}, func(*Tx) error { return end }); !errors.Is(err, end) {
				w.Fatal(err)
			}
			if err := other.Incr(w.Context(), "n").Err(); err != nil {
				w.Fatal(err)
			}
			if _, err := c.cfg.Redis.TxPipelined(w.Context(), func(p redis.Pipeliner) error { p.Incr(w.Context(), "n"); return nil }); err != nil {
				w.Errorf("a transaction on the same connection: %v", err)
			}
			if n := w.number(); n != 2 {
				w.Errorf("n is %d", n)
			}
		})
	}
}

func TestUpdatesThatCannotBe(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		tries := 0
		wrongType := func(tx *Tx) error { tries++; tx.Write.HSet(w.Context(), "n", "a", 1); return nil }
		tooFew := func(tx *Tx) error { tries++; tx.Write.Do(w.Context(), "HSET", "h"); return nil }
		if err := c.Update(w.Context(), []string{"n"}, increment(w.Context(), nothing)); err != nil {
			w.Fatal(err)
		}
		for name, change := range map[string]func(*Tx) error{"WRONGTYPE": wrongType, "ERR wrong number": tooFew} {
			tries = 0
			if err := c.Update(w.Context(), []string{"n"}, change); err == nil || errors.Is(err, ErrUnknown) || tries != 1 || !strings.Contains(err.Error(), name) {
				w.Errorf("%d tries, %v, want %s", tries, err, name)
			}
		}
		if err := c.Update(w.Context(), nil, increment(w.Context(), nothing)); err == nil {
			w.Error("an update of no keys")
		}
		closeAll()
		if err := c.Update(w.Context(), []string{"n"}, increment(w.Context(), nothing)); !errors.Is(err, ErrClosed) {
			w.Error(err)
		}
	})
}

// A command that finds nothing hides no other that has failed.
func TestUpdateNamesTheCommandThatFailed(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		c.cfg.Redis.LPush(w.Context(), "list", "x")
		err := c.Update(w.Context(), []string{"n"}, func(tx *Tx) error {
			tx.Write.Get(w.Context(), "missing")
			tx.Write.Incr(w.Context(), "list")
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			w.Error(err)
		}
		if err := c.Update(w.Context(), []string{"n"}, func(tx *Tx) error { tx.Write.Get(w.Context(), "missing"); return nil }); err != nil {
			w.Error(err)
		}
	})
}

// BenchmarkScripts takes and gives back locks, and reports how long the server works for one script, by its own account: on the Redis that CRONCLAVE_TEST_REDIS names.
func BenchmarkScripts(b *testing.B) {
	o, err := redis.ParseURL(os.Getenv("CRONCLAVE_TEST_REDIS"))
	if err != nil {
		b.Skip("CRONCLAVE_TEST_REDIS names no server")
	}
	o.ContextTimeoutEnabled, o.ReadTimeout = true, 20*time.Second
	rdb := redis.NewClient(o)
	defer rdb.Close()
	for name, r := range map[string]lease.Request{
		"compact": {Lock: "a"},
		"short":   {Lock: "b", Permanent: true},
		"whole":   {Lock: "c", Slots: 2},
		"pool of": {Lock: "d", Slots: 100, AnyLimit: true, Permanent: true},
		"orphans": {Lock: "e", Permanent: true, Trigger: "t"},
	} {
		b.Run(name, func(b *testing.B) {
			c, err := New(Config{Redis: rdb, Prefix: fmt.Sprintf("bench-%d:", time.Now().UnixNano()), Timeout: 20 * time.Second})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			rdb.ConfigResetStat(b.Context())
			for b.Loop() {
				a := c.requests.Acquire(b.Context(), r)
				if a.Verdict != lease.Granted {
					b.Fatal(a.Verdict, a.Err)
				}
				if err := leaseOf(a.Run).Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			stats := rdb.Info(b.Context(), "commandstats").Val()
			if m := regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=\d+,usec_per_call=([0-9.]+)`).FindStringSubmatch(stats); m != nil {
				us, _ := strconv.ParseFloat(m[1], 64)
				b.ReportMetric(us, "server-us/script")
			}
		})
	}
}
