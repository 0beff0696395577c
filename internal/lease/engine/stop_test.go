package engine

import (
	"context"
	"testing"
	"time"
)

// A holder that no message reaches gets the stop request with its next renewal, a third of the lease later at
// most.
// Promise: P5
func TestStopOutlivesItsMessage(t *testing.T) {
	inBubble(t, func(w *wire) {
		holder, closeHolder := w.client(Config{})
		other, closeOther := w.client(Config{})
		defer closeHolder()
		defer closeOther()
		l := w.lock(holder, "x", 30*time.Second)
		defer w.release(l)
		if told := other.Stop(w.Context(), []StopRequest{{Lock: "x", ID: l.ID(), Reason: "user"}})[0]; told.ID != l.ID() || told.Err != nil {
			w.Fatalf("%+v", told)
		}
		w.pass(9 * time.Second)
		if why := RunOf(l).StopReason(); why != "" {
			w.Errorf("before its renewal: %q", why)
		}
		w.pass(2 * time.Second)
		if why := RunOf(l).StopReason(); why != "user" {
			w.Errorf("after its renewal: %q", why)
		}
	})
}

// A server that forgets loses the stop request, too; asked again, it has it.
// Promise: P5
func TestStopOfARowThatWasPutBack(t *testing.T) {
	inBubble(t, func(w *wire) {
		holder, closeHolder := w.client(Config{})
		other, closeOther := w.client(Config{})
		defer closeHolder()
		defer closeOther()
		l := w.lock(holder, "x", 30*time.Second)
		defer w.release(l)
		stop := func() StopAnswer {
			return other.Stop(context.Background(), []StopRequest{{Lock: "x", ID: l.ID(), Reason: "user"}})[0]
		}
		stop()
		if err := other.cfg.Redis.FlushAll(w.Context()).Err(); err != nil {
			w.Fatal(err)
		}
		if told := stop(); told.ID != "" || told.Err != nil {
			w.Errorf("of a row that is forgotten: %+v", told)
		}
		w.pass(11 * time.Second) // it is put back
		if why := RunOf(l).StopReason(); why != "" {
			w.Errorf("after the put-back: %q", why)
		}
		if told := stop(); told.ID != l.ID() {
			w.Fatalf("%+v", told)
		}
		w.pass(11 * time.Second)
		if why := RunOf(l).StopReason(); why != "user" {
			w.Errorf("asked again: %q", why)
		}
	})
}

// TestMarksAreBounded removes the mark of a stop request with its row.
// Promise: P9
func TestMarksAreBounded(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		for _, end := range []string{"released", "expired"} {
			l := w.lock(c, "x", time.Second)
			c.Stop(w.Context(), []StopRequest{{Lock: "x", ID: l.ID(), Reason: "user"}})
			if !c.cfg.Redis.HExists(w.Context(), c.lockKey("x"), "s0").Val() {
				w.Fatal("there is no mark")
			}
			if end == "expired" {
				c.keeper.remove(l)
				w.pass(2 * time.Second)
				c.Inspect(w.Context(), []InspectRequest{{Lock: "x"}})
			} else {
				w.release(l)
			}
			if c.cfg.Redis.HExists(w.Context(), c.lockKey("x"), "s0").Val() {
				w.Errorf("%s: the mark is still there", end)
			}
		}
	})
}

// TestFaultyStops refuses faulty requests at once.
func TestFaultyStops(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		for _, r := range []StopRequest{{Lock: "x", ID: "a"}, {Lock: "x", ID: "a", Reason: "a\tb"}, {Lock: "x", ID: "a\n", Reason: "r"},
			{Lock: "x", Reason: "r"}, {ID: "a", Reason: "r"}} {
			if told := c.Stop(w.Context(), []StopRequest{r})[0]; told.Err == nil || told.ID != "" {
				w.Errorf("%+v: %+v", r, told)
			}
		}
	})
}
