package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Something else is under the key of a lock on a majority of masters: it is refused at once, and a waiter for it
// ends at once. On a minority it costs nothing.
// Promise: quorum
func TestQuorumSomethingElseUnderTheKey(t *testing.T) {
	inBubble(t, func(w *wire) {
		servers, masters, closeServers := w.masters(5)
		defer closeServers()
		c, _, closeAll := w.quorumOver(servers)
		defer closeAll()
		w.release(w.lock(c, "m", time.Second))
		w.pass(time.Second)
		foul := func(nodes []*redis.Client, lock string) {
			for _, m := range nodes {
				m.Set(w.Context(), "locking:{"+lock+"}", "a report", 0)
			}
		}
		at := w.Start.Add(w.clock()).Truncate(time.Second)
		tick := &Tick{At: at, Previous: at.Add(-time.Second), Schedule: "s"}
		foul(masters[:2], "few")
		foul(masters[:2], "few-job")
		w.release(w.lock(c, "few", time.Second))
		if a := c.Acquire(w.Context(), Request{Lock: "few-job", Trigger: "manual"}); a.Verdict != Granted {
			w.Errorf("on a minority: %s, %v", a.Verdict, a.Err)
		} else {
			w.release(a.Lease)
		}
		foul(masters[1:4], "m")
		foul(masters[1:4], "job")
		for name, ask := range map[string]func() error{
			"try":  func() error { return c.Acquire(w.Context(), Request{Lock: "m"}).Err },
			"wait": func() error { _, err := c.Mutex("m").Lock(w.Context()); return err },
			"tick": func() error { return c.Acquire(w.Context(), Request{Lock: "job", Tick: tick}).Err },
			"look": func() error { return c.Inspect(w.Context(), []InspectRequest{{Lock: "job"}})[0].Err },
		} {
			begin := w.clock()
			err := ask()
			if !errors.Is(err, ErrRefused) || !errors.Is(err, ErrUnknown) {
				w.Errorf("%s: %v", name, err)
				continue
			}
			if took := w.clock() - begin; took > 100*time.Millisecond {
				w.Errorf("%s: refused after %v", name, took)
			}
			key := "locking:{m}"
			if name == "tick" || name == "look" {
				key = "locking:{job}"
			}
			for i := range masters {
				if named := strings.Contains(err.Error(), address(i)); named != (i >= 1 && i < 4) {
					w.Errorf("%s: master %d is named: %v: %v", name, i, named, err)
				}
			}
			if !strings.Contains(err.Error(), key) {
				w.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The error of a quorum without a majority names the masters that have failed, and no other.
// Promise: quorum
func TestQuorumErrorNamesThoseThatFailed(t *testing.T) {
	inBubble(t, func(w *wire) {
		servers, _, closeServers := w.masters(5)
		defer closeServers()
		c, ways, closeAll := w.quorumOver(servers)
		defer closeAll()
		w.release(w.lock(c, "m", time.Second))
		w.pass(time.Second)
		for _, i := range []int{0, 2, 3} {
			ways[i].fail("mute")
		}
		for range 2 { // the second time they are known to be silent
			err := c.Acquire(w.Context(), Request{Lock: "m"}).Err
			if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrRefused) {
				w.Fatal(err)
			}
			for i := range servers {
				if named := strings.Contains(err.Error(), address(i)); named != (i == 0 || i == 2 || i == 3) {
					w.Errorf("master %d is named: %v: %v", i, named, err)
				}
			}
		}
	})
}
