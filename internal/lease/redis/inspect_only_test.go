package redis

import (
	"reflect"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

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
		if len(told[0].Rows) != 1 || len(told[1].Rows) != 1 || len(told[2].Rows) != 0 || len(told[2].Orphans) != 1 {
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
