package engine

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// hearing has a client hear until the test's end; its events are read after synctest.Wait.
func hearing(w *wire, c *Client) (heard func() []GrantEvent, stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var all []GrantEvent
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.Subscribe(ctx, func(n []GrantEvent) { all = append(all, n...) })
	}()
	synctest.Wait()
	return func() []GrantEvent { synctest.Wait(); return all }, func() { cancel(); <-over }
}

// A client that has heard of a grant prevents a second one: a server that forgets the grant, after its holder is
// gone, does not grant the tick again.
// Promise: P1
func TestEventOfAGrantIsRestored(t *testing.T) {
	inBubble(t, func(w *wire) {
		winner, closeWinner := w.client(Config{})
		hearer, closeHearer := w.client(Config{})
		defer closeWinner()
		defer closeHearer()
		w.release(w.lock(hearer, "warm", time.Minute)) // it knows the server's clock
		heard, stop := hearing(w, hearer)
		defer stop()
		for _, c := range []*Client{winner, hearer} { // a client does not remember messages about locks that it does not use
			c.Inspect(w.Context(), []InspectRequest{{Lock: "x", Permanent: true, Schedule: "s"}})
		}
		w.pass(2 * time.Second)
		tick := Tick{At: time.Now().Truncate(time.Second), Previous: time.Now().Add(-time.Hour), Schedule: "s"}
		r := Request{Lock: "x", Lease: time.Minute, Permanent: true, AnyLimit: true, Tick: &tick}
		a := winner.Acquire(w.Context(), r)
		if a.Verdict != Granted {
			w.Fatalf("%+v", a)
		}
		if err := winner.Publish(w.Context(), []*Lease{a.Lease}, nil); err != nil {
			w.Fatal(err)
		}
		got := heard()
		if len(got) != 1 || got[0].Lock != "x" || !got[0].Tick.Equal(tick.At) || got[0].Until.Before(time.Now().Add(59*time.Second)) {
			w.Fatalf("heard %+v", got)
		}
		if err := winner.cfg.Redis.FlushAll(w.Context()).Err(); err != nil {
			w.Fatal(err)
		}
		if a := hearer.Acquire(w.Context(), r); a.Verdict != Closed {
			w.Errorf("after the loss: %q", a.Verdict)
		}
		w.pass(2 * time.Minute)
		if a := hearer.Acquire(w.Context(), r); a.Verdict != Decided {
			w.Errorf("when the lock is open again: %q", a.Verdict)
		}
	})
}

// A server that is away ends no subscription for good.
func TestHearAgainAfterAnOutage(t *testing.T) {
	for _, how := range []string{"deaf", "mute", "cut"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(w *wire) {
				teller, closeTeller := w.client(Config{})
				hearer, closeHearer := w.client(Config{})
				defer closeTeller()
				defer closeHearer()
				heard, stop := hearing(w, hearer)
				defer stop()
				if how == "cut" {
					w.cut(3)
					teller.Acquire(w.Context(), Request{Lock: "y"})
				} else {
					w.fail(how)
				}
				w.pass(time.Minute)
				w.fail()
				w.pass(time.Minute)
				l := w.lock(teller, "x", time.Minute)
				defer w.release(l)
				if err := teller.Publish(w.Context(), []*Lease{l}, nil); err != nil {
					w.Fatal(err)
				}
				if n := len(heard()); n != 1 {
					w.Errorf("heard %d events", n)
				}
			})
		})
	}
}

// A message of another program in the channel is no event, and does no harm.
func TestStrangeEvents(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		heard, stop := hearing(w, c)
		defer stop()
		for _, s := range []string{"", "x", "{}", "null", "stop\tx", "stop\t\tr\n", "stop\tx\tr\ts\n", "x\t1\t2", "x\ta\tb\tc\td\te\tf\ttrue\to\t", "\t1\t2\t3\t4\t5\t6\ttrue\to\t\n", "x\t-1\t2\t3\t4\t5\t6\ttrue\to\t\n"} {
			if err := c.cfg.Redis.Publish(w.Context(), c.cfg.Prefix+"granted", s).Err(); err != nil {
				w.Fatal(err)
			}
		}
		if got := heard(); len(got) != 0 {
			w.Errorf("heard %+v", got)
		}
	})
}

// One message must not harm a lock for longer than a lease: a message that can't be true is not believed, and
// one about a lock that the client does not use is not remembered.
// Promise: P4, damage
func TestForgedEvents(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		c.Inspect(w.Context(), []InspectRequest{{Lock: "x", Permanent: true, Schedule: "s"}})
		w.release(w.lock(c, "plain", time.Minute))
		heard, stop := hearing(w, c)
		defer stop()
		now, good := time.Now().UnixMicro(), int64(time.Minute/time.Microsecond)
		day := int64(MaxLease / time.Microsecond)
		for _, g := range []grantMessage{
			{floor: now, longest: 8e15}, {floor: 1<<53 - 1, longest: good}, {floor: now + 2*good, longest: good}, {floor: now, longest: day + 1},
			{floor: now, longest: good, low: now/1e6 + 3600}, {floor: now, longest: good, now: now + 2*good}, {floor: now, longest: good, until: now + 2*day},
			{floor: now, longest: good, ledger: "!9007199254740991,1,0,skipped,x"}, {floor: now, longest: good, ledger: "!x"}, {floor: now, longest: good, ledger: "1 2 odd 3"},
		} {
			g.lock, g.owner, g.tick, g.now, g.until = "x", "o", now/1e6, max(g.now, now), max(g.until, now+1)
			if err := c.cfg.Redis.Publish(w.Context(), c.cfg.Prefix+"granted", g.message()).Err(); err != nil {
				w.Fatal(err)
			}
		}
		if got := heard(); len(got) != 0 {
			w.Errorf("believed %+v", got)
		}
		if k, _ := c.observed.Last("x"); k.Floor > now || k.Longest > good || k.Paused != "" {
			w.Errorf("remembered %+v", k)
		}
		before := c.observed.Len()
		for i := range 3000 {
			g := grantMessage{lock: fmt.Sprint("invented-", i), owner: "o", now: now, floor: now, longest: good, permanent: true}
			if err := c.cfg.Redis.Publish(w.Context(), c.cfg.Prefix+"granted", g.message()).Err(); err != nil {
				w.Fatal(err)
			}
		}
		plain := grantMessage{lock: "plain", owner: "o", now: now, floor: now, longest: good, permanent: true}
		if err := c.cfg.Redis.Publish(w.Context(), c.cfg.Prefix+"granted", plain.message()).Err(); err != nil {
			w.Fatal(err)
		}
		heard()
		if k, _ := c.observed.Last("plain"); k.Permanent || c.observed.Len() != before {
			w.Errorf("%d locks, before %d; the plain one is permanent: %v", c.observed.Len(), before, k.Permanent)
		}
		if a := c.Acquire(w.Context(), Request{Lock: "x", Permanent: true, AnyLimit: true}); a.Verdict != Granted {
			w.Errorf("%q, %v", a.Verdict, a.Err)
		} else {
			w.release(a.Lease)
		}
	})
}

// A replica that may carry on a run hears that its holder has left it.
// Promise: P5
func TestHearsOfWhatIsLeft(t *testing.T) {
	inBubble(t, func(w *wire) {
		holder, closeHolder := w.client(Config{})
		hearer, closeHearer := w.client(Config{})
		defer closeHolder()
		defer closeHearer()
		heard, stop := hearing(w, hearer)
		defer stop()
		holder.Inspect(w.Context(), []InspectRequest{{Lock: "x", Permanent: true, Schedule: "s"}})
		w.pass(2 * time.Second)
		tick := Tick{At: time.Now().Truncate(time.Second), Previous: time.Now().Add(-time.Hour), Schedule: "s"}
		a := holder.Acquire(w.Context(), Request{Lock: "x", Lease: time.Minute, Permanent: true, AnyLimit: true, Trigger: "t", Tick: &tick})
		if a.Verdict != Granted {
			w.Fatalf("%+v", a)
		}
		w.pass(time.Second)
		if err := RunOf(a.Lease).HandOver(w.Context(), 1); err != nil {
			w.Fatal(err)
		}
		if got := heard(); len(got) != 1 || !got[0].Tick.Equal(tick.At) || time.Until(got[0].Until).Abs() > time.Millisecond {
			w.Errorf("heard %+v", got)
		}
	})
}

// A lease that was given back is announced as ended, so that clients which believe its tick taken look again.
// Promise: P5
func TestUndoIsPublished(t *testing.T) {
	inBubble(t, func(w *wire) {
		winner, closeWinner := w.client(Config{})
		hearer, closeHearer := w.client(Config{})
		defer closeWinner()
		defer closeHearer()
		heard, stop := hearing(w, hearer)
		defer stop()
		winner.Inspect(w.Context(), []InspectRequest{{Lock: "x", Permanent: true, Schedule: "s"}})
		w.pass(2 * time.Second)
		tick := Tick{At: time.Now().Truncate(time.Second), Previous: time.Now().Add(-time.Hour), Schedule: "s"}
		a := winner.Acquire(w.Context(), Request{Lock: "x", Lease: time.Minute, Permanent: true, AnyLimit: true, Tick: &tick})
		if a.Verdict != Granted {
			w.Fatalf("%+v", a)
		}
		if err := RunOf(a.Lease).Undo(w.Context()); err != nil {
			w.Fatal(err)
		}
		if err := winner.Publish(w.Context(), []*Lease{a.Lease}, nil); err != nil {
			w.Fatal(err)
		}
		if got := heard(); len(got) != 1 || got[0].Until.After(time.Now()) || !got[0].Tick.Equal(tick.At) {
			w.Errorf("heard %+v", got)
		}
	})
}

// grantMessage is a message about a grant, or a pause, as package single publishes it.
type grantMessage struct {
	lock, owner, ledger      string
	tick, until              int64
	now, floor, longest, low int64
	permanent                bool
}

func (g grantMessage) message() string {
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d\t%d\t%t\t%s\t%s\n", g.lock, g.tick, g.until, g.now, g.floor, g.longest, g.low, g.permanent, g.owner, g.ledger)
}
