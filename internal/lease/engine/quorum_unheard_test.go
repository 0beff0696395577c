package engine

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease/quorum"
)

// quorum returns a client of n masters in the bubble, and one of each of them; call close.
func (w *wire) quorum(n int) (c *Client, masters []*redis.Client, closeAll func()) {
	w.Helper()
	cfg := Config{Clock: w.clock}
	var wires []*wire
	for range n {
		wires = append(wires, w.another())
		masters = append(masters, wires[len(wires)-1].redis(-1))
		cfg.Quorum = append(cfg.Quorum, masters[len(masters)-1])
	}
	c, err := New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return c, masters, func() {
		if err := c.Close(); err != nil {
			w.Error(err)
		}
		for i, m := range masters {
			_ = m.Close()
			wires[i].Server.Close()
		}
	}
}

// A master that has forgotten votes again also where the only lock that is used is one for which others are asked first.
// Promise: quorum
func TestQuorumNoticesThatANodeHasForgottenWhichIsNotNeeded(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, masters, closeAll := w.quorum(5)
		defer closeAll()
		pairs := func(d time.Duration) {
			for end := w.clock() + d; w.clock() < end; w.pass(time.Second) {
				if err := w.lock(c, "m", time.Second).Release(w.Context()); err != nil {
					w.Fatal(err)
				}
			}
		}
		state := func(node int) string { return masters[node].HGet(w.Context(), "locking:quorum", "state").Val() }
		pairs(5 * time.Second)
		for _, node := range []int{3, 4} { // the others are asked first
			if state(node) != "voting" {
				w.Errorf("node %d at the beginning: %q", node, state(node))
			}
			masters[node].FlushAll(w.Context())
			pairs(2 * quorum.RefreshAfter)
			if state(node) != "voting" {
				w.Errorf("node %d has forgotten, and is %q", node, state(node))
			}
		}
	})
}
