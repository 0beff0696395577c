package scheduler_test

import (
	"fmt"
	"testing"
)

// want compares, for one line of a test.
func want[T any](t *testing.T, what string, got, expected T) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(expected); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

// seconds lists from, from+step, ... up to to.
func seconds(from, to, step int) []int {
	var out []int
	for s := from; s <= to; s += step {
		out = append(out, s)
	}
	return out
}

// checkRuns holds the promises that every test must keep: a tick is granted at most perTick times and each slot
// once (P1), not before its instant (P2), never more than parallel at once (P3), with growing tokens (P4).
func (c *cluster) checkRuns(job string, parallel, perTick int) {
	c.t.Helper()
	c.checkAttempts(job, perTick)
	grants := map[string]int{}
	var newest int64
	all := c.runs(job)
	for i, r := range all {
		tick := fmt.Sprintf("%s %d", r.Job, c.second(r.Tick))
		grants[tick]++
		grants[fmt.Sprintf("%s slot %d", tick, r.Slot)]++
		if n := grants[tick]; !r.Tick.IsZero() && n > perTick {
			c.t.Errorf("P1: %s ran %d times", tick, n)
		}
		if n := grants[fmt.Sprintf("%s slot %d", tick, r.Slot)]; !r.Tick.IsZero() && n > 1 {
			c.t.Errorf("P1: %s ran %d times in slot %d", tick, n, r.Slot)
		}
		if r.from.Before(r.Tick) {
			c.t.Errorf("P2: %s ran %v early", tick, r.Tick.Sub(r.from))
		}
		beside := 0
		for _, o := range all[:i] {
			if o.to.IsZero() || o.to.After(r.from) {
				beside++
			}
		}
		if beside >= parallel {
			c.t.Errorf("P3: %s began beside %d others", tick, beside)
		}
		if parallel == 1 && r.Token <= newest {
			c.t.Errorf("P4: %s has token %d after %d", tick, r.Token, newest)
		}
		newest = r.Token
	}
}
