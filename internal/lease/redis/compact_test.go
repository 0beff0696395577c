package redis

import (
	"testing"
	"time"

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
