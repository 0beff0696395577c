package engine

import (
	"reflect"
	"testing"
	"time"
)

// TestLookByAReader looks without writing at locks that a look has to mend first: it returns the same, and
// changes nothing.
func TestLookByAReader(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{Owner: "us"})
		defer closeAll()
		w.compact(c, "folded")
		w.lockCompact(c, "folded")
		w.lock(c, "held", time.Hour)
		a := c.Acquire(w.Context(), Request{Lock: "orphaned", Lease: time.Second, Trigger: "schedule", Permanent: true})
		if a.Verdict != Granted {
			w.Fatalf("%+v", a)
		}
		w.fail("mute") // no renewal gets through
		w.pass(2 * time.Second)
		w.fail()
		locks := []InspectRequest{{Lock: "folded"}, {Lock: "held"}, {Lock: "orphaned", Permanent: true}, {Lock: "unused"}}
		before := w.stored(c, locks)
		eval := *c.one().scripts.InspectOnly
		eval.ReadOnly = false // this server takes TIME for a command that writes
		var calls []call
		for _, l := range locks {
			calls = append(calls, c.one().inspectionBy(&eval, l))
		}
		var told []State
		for i, got := range c.one().exec(w.Context(), calls) {
			told = append(told, state(locks[i].Lock, got))
		}
		if after := w.stored(c, locks); !reflect.DeepEqual(after, before) {
			w.Errorf("it has changed\n%v\nto\n%v", before, after)
		}
		want := c.Inspect(w.Context(), locks)
		for i, l := range locks {
			told[i].Now, want[i].Now = time.Time{}, time.Time{}
			if want[i].Err != nil || !reflect.DeepEqual(told[i], want[i]) {
				w.Errorf("%s: told\n%+v, want\n%+v", l.Lock, told[i], want[i])
			}
		}
		if len(told[0].Rows) != 1 || len(told[1].Rows) != 1 || len(told[2].Rows) != 0 || len(told[2].Orphans) != 1 {
			w.Errorf("told %+v", told)
		}
	})
}

// stored is all that the server has of locks.
func (w *wire) stored(c *Client, locks []InspectRequest) map[string]any {
	w.Helper()
	all := map[string]any{}
	for _, l := range locks {
		for _, key := range c.one().keys(l.Lock, "")[:3] {
			if kind := c.cfg.Redis.Type(w.Context(), key).Val(); kind == "string" {
				all[key] = c.cfg.Redis.Get(w.Context(), key).Val()
			} else {
				all[key] = c.cfg.Redis.HGetAll(w.Context(), key).Val()
			}
		}
	}
	return all
}
