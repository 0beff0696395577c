package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRetry has a command fail twice: it is tried again under the same lease, and the history has all three tries.
func TestRetry(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[jobs.moody]
schedule = "*/30 * * * * *"
command = '"$SCRIBE"; test "$CRONCLAVE_ATTEMPT" = 3'
retry = { max = 3, delay = "100ms" }
`)
	replicas := c.startAll(t, 2)
	last := c.awaitRun(t, startTimeout, "moody", "the try that is ok", func(r pastRun) bool { return r.verdict() == "ok" })
	stopAll(t, replicas)
	var told []string
	for _, r := range c.history(t, "moody") {
		if r.Tick.Equal(last.Tick) {
			told = append(told, fmt.Sprint(strings.TrimPrefix(r.RunID, last.RunID), " ", r.Attempt, " ", r.Token == last.Token, " ", r.verdict()))
		}
	}
	slices.Sort(told)
	want := []string{" 3 true ok", ".1 1 true failed exit code 1", ".2 2 true failed exit code 1"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	var attempts []int
	for _, l := range event("start", c.lines(t, "moody")) {
		if l.RunID == last.RunID {
			attempts = append(attempts, l.Attempt)
		}
	}
	if !slices.Equal(attempts, []int{1, 2, 3}) {
		t.Errorf("attempts %v", attempts)
	}
}
