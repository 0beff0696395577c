package redis

import (
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// A first request that arrives after it was withdrawn, or too late, leaves no lease.
// Promise: P9
func TestCompactGrantThatArrivesLate(t *testing.T) {
	for name, late := range map[string]func(w *bench, r lease.Request){
		"after the withdrawal": func(w *bench, r lease.Request) {
			if _, err := w.Release(w.Context(), lease.Withdrawal(r)); err != nil {
				w.Fatal(err)
			}
			w.makeCompact("x") // by others, meanwhile
		},
		"too late": func(w *bench, _ lease.Request) { w.Pass(2 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(w *bench) {
				w.makeCompact("x")
				r := lease.Request{Lock: "x", Lease: time.Minute}.WithDefaults()
				k := w.compactGrant(r, w.cfg.Observed.Of("x", w.Clock, w.cfg.Idle))
				micros, _ := w.servers.only.At(w.Clock())
				cmd := k.asCommand(w.Context(), false, micros+w.cfg.Timeout.Microseconds())
				late(w, r)
				if err := w.rdb.Process(w.Context(), cmd); err != nil {
					w.Fatal(err)
				}
				if rows := w.rows("x"); len(rows) != 0 {
					w.Errorf("it is held: %+v", rows)
				}
			})
		})
	}
}

// Only one of several requests for one lock in the same round trip is granted.
// Promise: P1
func TestCompactLockIsAskedForTwice(t *testing.T) {
	onBench(t, func(w *bench) {
		w.makeCompact("x")
		know, _ := w.cfg.Observed.Last("x")
		var calls []call
		for _, id := range []string{"one", "other"} {
			r := lease.Request{Lock: "x", ID: id, Lease: time.Minute}.WithDefaults()
			calls = append(calls, w.compactGrant(r, know))
		}
		w.Sent()
		replies := w.sendCalls(w.Context(), calls)
		if trips := len(w.Sent()); trips != 1 {
			w.Errorf("%d commands for both", trips)
		}
		if replies[0].verdict != "granted" || replies[1].verdict != notCompact {
			w.Errorf("%+v", replies)
		}
		if rows := w.rows("x"); len(rows) != 1 || rows[0].ID != "one" {
			w.Errorf("rows %+v", rows)
		}
	})
}

// TestLookByAReader looks without writing at locks that a look has to mend first: it returns the same, and
// changes nothing.
func TestLookByAReader(t *testing.T) {
	onBench(t, func(w *bench) {
		w.makeCompact("compact")
		w.lock("compact", time.Minute)
		w.lock("held", time.Hour)
		a := w.askRow(w.Context(), lease.Request{Lock: "orphaned", Lease: time.Second, Trigger: "schedule", Permanent: true}.WithDefaults())
		if a.Verdict != lease.Granted {
			w.Fatalf("%+v", a)
		}
		w.Pass(2 * time.Second)
		locks := []lease.InspectRequest{{Lock: "compact"}, {Lock: "held"}, {Lock: "orphaned", Permanent: true}, {Lock: "unused"}}
		before := w.stored(locks)
		eval := *w.scripts.InspectOnly
		eval.ReadOnly = false // this server takes TIME for a command that writes
		var calls []call
		for _, l := range locks {
			calls = append(calls, w.inspectionBy(&eval, l))
		}
		var told []lease.State
		for i, got := range w.execCalls(w.Context(), calls) {
			told = append(told, stateOf(locks[i].Lock, got))
		}
		if after := w.stored(locks); !reflect.DeepEqual(after, before) {
			w.Errorf("it has changed\n%v\nto\n%v", before, after)
		}
		want := w.Inspect(w.Context(), locks)
		for i, l := range locks {
			told[i].Now, want[i].Now = time.Time{}, time.Time{}
			if want[i].Err != nil || !reflect.DeepEqual(told[i], want[i]) {
				w.Errorf("%s: told\n%+v, want\n%+v", l.Lock, told[i], want[i])
			}
		}
		if len(told[0].Running) != 1 || len(told[1].Running) != 1 || len(told[2].Running) != 0 || len(told[2].Orphans) != 1 {
			w.Errorf("told %+v", told)
		}
	})
}

// stored is all that the server has of locks.
func (w *bench) stored(locks []lease.InspectRequest) map[string]any {
	w.Helper()
	all := map[string]any{}
	for _, l := range locks {
		for _, key := range w.keys(l.Lock, "")[:3] {
			if kind := w.rdb.Type(w.Context(), key).Val(); kind == "string" {
				all[key] = w.rdb.Get(w.Context(), key).Val()
			} else {
				all[key] = w.rdb.HGetAll(w.Context(), key).Val()
			}
		}
	}
	return all
}

// FuzzNotices has a client hear anything: it believes nothing that can't be true, and remembers no lock that it does not use.
// Promise: damage
func FuzzNotices(f *testing.F) {
	f.Add("x\t1\t2\t3\t4\t5\t6\ttrue\to\t1 1 done granted\n")
	f.Add("x\t1\t9007199254740993\t3\t9007199254740991\t8000000000000000\t6\ttrue\to\t!9007199254740991,1,0,x,y\n")
	f.Add("stop\tid\treason\nreleased\tx\n")
	f.Add("id 0 1792000000000001 1792000001000000 1792000000000000 30000000")
	f.Fuzz(func(t *testing.T, message string) {
		rdb := redis.NewClient(&redis.Options{})
		defer rdb.Close()
		clockStands := func() time.Duration { return time.Hour }
		s := New(Config{Redis: rdb, Clock: clockStands, Idle: time.Minute, Work: lease.NewBackground(clockStands), Observed: lease.NewObservedCache(), AskToStop: func(string, string) {}})
		s.cfg.Observed.Set("x", lease.Observed{Permanent: true})
		now := int64(1_792_000_000_000_000)
		s.servers.only.Observe(now, time.Hour, time.Hour)
		for _, n := range s.learnEvents(message) {
			if lease.ToMicros(n.Until) > now+lease.MaxLease.Microseconds()+lease.MinuteMicros || lease.ToMicros(n.Tick) > now+lease.MinuteMicros {
				t.Errorf("believed %+v", n)
			}
		}
		k, _ := s.cfg.Observed.Last("x")
		if s.cfg.Observed.Len() != 1 || !k.Permanent || k.Floor > now+lease.MinuteMicros || k.Low*1e6 > now+lease.MinuteMicros || k.Longest > lease.MaxLease.Microseconds() {
			t.Errorf("%d locks are remembered, and of x %+v", s.cfg.Observed.Len(), k)
		}
		if g, ok := parseGrant(message); ok && (g.expiry-g.now > lease.MaxLease.Microseconds()+lease.MinuteMicros || g.slot >= lease.MaxSlots) {
			t.Errorf("believed %+v", g)
		}
	})
}
