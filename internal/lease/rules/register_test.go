package rules

import (
	"errors"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// FuzzRegister has a quorum read any register: one that is no register is refused, and the rules work on all others.
// Promise: damage
func FuzzRegister(f *testing.F) {
	for _, s := range []string{"", "{}", "null", "[]", `{"low":9223372036854775807}`, `{"low":-1}`, `{"ticks":{"7":{"prev":6,"state":"part","slots":[0,99999]}}}`,
		`{"ticks":{"7":{"prev":6,"state":"part","slots":[0]},"8":{"prev":7,"state":"done","how":"x"}},"digest":"s","since":1}`,
		`{"runs":{"a":{"owner":"o","slot":0,"token":5,"lease":1,"tick":7,"attempt":1,"trigger":"t"}},"followers":{"f":{"used":1,"seen":2}},"outcomes":{"7":-1,"8":0}}`,
		`{"paused":"9007199254740991,1,0,skipped,x"}`, `{"settled":[{"tick":1,"at":2,"how":"x"}]}`} {
		f.Add(s, int64(7))
	}
	f.Fuzz(func(t *testing.T, value string, tick int64) {
		g, err := Read(value)
		if err != nil {
			if !errors.Is(err, lease.ErrCorrupt) || !errors.Is(err, lease.ErrRefused) {
				t.Errorf("%v", err)
			}
			return
		}
		const now = int64(1_792_000_000_000_000)
		tick = min(max(tick, 1), lease.MaxTick)
		r := lease.Request{Lock: "x", Trigger: "t", Tick: &lease.Tick{At: time.Unix(tick, 0), Previous: time.Unix(tick-1, 0), Schedule: "s", IfHeld: "skipped"}}.WithDefaults()
		g.Claim(r, "o", View{Now: now, Latest: now})
		g.Inspect(lease.InspectRequest{Schedule: "s2", SettleOutcome: "missed", SettleSchedule: "s2"}, tick, now, now)
		g.RecordOutcome(tick, true, 1, now)
		g.Follow("f", tick, now)
		r.ID = "a"
		g.End(&r, true)
		again, err := Read(g.Value())
		if err != nil || again.Value() != g.Value() {
			t.Errorf("what the rules made of it: %v", err)
		}
	})
}
