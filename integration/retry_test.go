package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A command that fails twice is tried again under the same lease, and the history has all three tries.
func TestRetriedCommand(t *testing.T) {
	slow(t)
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
	checkAttempts(t, c.lines(t, "moody"), c.history(t, "moody"))
}

// No two attempts of a tick have the same number although their holder was cut off. The test cuts the link of a
// replica during the first try of a run. Its next try waits for the cluster, the lease ends first, and the tick is
// run again elsewhere.
// Promise: P6
func TestTriesOfAHolderThatIsCutOff(t *testing.T) {
	slow(t)
	t.Parallel()
	for name, broken := range map[string]func() fault{
		"silence":          func() fault { return fault{requests: nothing, replies: nothing} },
		"replies are lost": func() fault { return fault{replies: nothing} },
		"connections cut":  func() fault { return fault{reset: true} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, `
[jobs.moody]
schedule = "*/30 * * * * *"
command = '"$SCRIBE" -for 2s; false'
lease = "5s"
retry = { max = 4, delay = "100ms", max_delay = "200ms" }
recover = { max = 4 }
`)
			var replicas []*replica
			proxies := map[string]*proxy{}
			for i := range 3 {
				p := startProxy(t, c.Client.Options().Addr, nil, nil)
				r := c.startAt(t, fmt.Sprintf("r%d", i+1), p.url)
				proxies[r.Name], replicas = p, append(replicas, r)
			}
			for _, r := range replicas {
				r.WaitLog(t, soon, "announcement", announced)
			}
			first := c.awaitTick(t, 2*soon, "moody", 0)
			proxies[first.Replica].Break(broken())
			last := c.awaitRun(t, 2*soon, "moody", "last attempt", func(r pastRun) bool { return r.Attempt == 5 && r.verdict() == "failed exit code 1" })
			proxies[first.Replica].Mend()
			c.awaitRun(t, soon, "moody", "end of the first attempt", func(r pastRun) bool { return r.RunID == first.RunID && r.Outcome == "lost" })
			stopAll(t, replicas)
			if !last.Tick.Equal(time.Unix(first.Tick, 0)) || last.Replica == first.Replica || last.Token <= first.Token {
				t.Errorf("not the same tick elsewhere with a greater token:\n%v\n%+v", first, last)
			}
			lines := c.lines(t, "moody")
			for _, l := range event("start", lines) {
				if l.RunID == first.RunID && l.Attempt > 1 {
					t.Errorf("another try of the holder that is cut off: %v", l)
				}
			}
			checkAttempts(t, lines, c.history(t, "moody"))
			checkAlone(t, lines)
		})
	}
}
