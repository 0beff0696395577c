package scheduler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
)

// Of the ticks that no replica was there for the newest hundred have a record each, and all before them one, with their number, whichever of several
// replicas records it.
// Promise: P6
func TestLongGapIsLoggedTogether(t *testing.T) {
	for name, tt := range map[string]struct {
		up   int // the second at which replicas are there again
		more string
	}{
		"counted":          {1000, ""},
		"beyond counting":  {20_000, "at least "},
		"not one too many": {120, "none"},
		"one":              {121, "none"},
		"two":              {122, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.quiet = true
				jobs := []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(5*time.Second))}
				first := c.join("first", jobs)
				c.at(15*time.Second + 500*time.Millisecond)
				first.leave()
				c.at(time.Duration(tt.up)*time.Second + 500*time.Millisecond)
				c.joinAll(3, jobs)
				c.at(time.Duration(tt.up)*time.Second + 900*time.Millisecond)
				checkGap(t, c, 16, tt.up-5, tt.more)
				c.checkRuns("j", 1, 1)
			})
		})
	}
}

// checkGap compares the records of the ticks from one to another, which were all missed.
func checkGap(t *testing.T, c *cluster, from, to int, more string) {
	t.Helper()
	told, singly := c.told("j"), 0
	for second := to; second > to-100; second-- {
		want(t, fmt.Sprint("told of ", second), told[second], []string{"missed down"})
		singly++
	}
	var summaries []string
	together := 0
	for _, r := range c.words("j") {
		together += r.Ticks
		if len(r.Output) > 0 {
			summaries = append(summaries, fmt.Sprint(c.second(r.Tick), " ", r.Outcome, " ", r.Reason, ": ", string(r.Output)))
		}
	}
	if more == "none" {
		want(t, "summaries", summaries, nil)
		want(t, "missed", c.outcomes("j")["missed down"], to-from+1)
		return
	}
	n := to - from + 1 - singly
	if more != "" {
		n = 10_000
	}
	if len(summaries) != 1 || !strings.HasPrefix(summaries[0], fmt.Sprintf("%d missed down: one record for %s%d ticks, from ", from, more, n)) {
		t.Errorf("summaries %q, want one of %s%d ticks", summaries, more, n)
	}
	want(t, "ticks of the summary", together, n)
	want(t, "missed together and singly", c.outcomes("j")["missed down"], singly+1)
}
