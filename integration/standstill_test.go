package integration

import (
	"fmt"
	"strings"
	"testing"
)

// A tick that comes due while the only replica's process is stopped is missed because of overload, and not because of
// Redis, which answers.
// Promise: P6
func TestStoppedReplicaSaysOverload(t *testing.T) {
	slow(t)
	t.Parallel()
	const jobs, stopped = 20, 6 // so that claims are under way at most times
	var config strings.Builder
	fmt.Fprintf(&config, "[defaults]\nschedule = \"* * * * * *\"\ncommand = 'exec \"$SCRIBE\"'\nstart_deadline = \"1s\"\n")
	for i := range jobs {
		fmt.Fprintf(&config, "[jobs.j%d]\n", i)
	}
	c := newCluster(t, config.String())
	r := c.start(t, "r")
	c.awaitTick(t, 2*soon, "j0", 0)
	from := redisTime(t, c.Client).Unix()
	r.Stop(t)
	eventually(t, 2*soon, "time to pass", func() bool { return redisTime(t, c.Client).Unix() >= from+stopped })
	r.Cont(t)
	eventually(t, 2*soon, "a tick after the stop", func() bool {
		for _, p := range c.history(t, "j0") {
			if p.Tick.Unix() > from+stopped && p.Outcome == "ok" {
				return true
			}
		}
		return false
	})
	verdicts := map[string]int{}
	for i := range jobs {
		for _, p := range c.history(t, fmt.Sprintf("j%d", i)) {
			if s := p.Tick.Unix(); s > from+1 && s < from+stopped-1 { // well within the stop
				verdicts[p.verdict()]++
			}
		}
	}
	if verdicts["missed overload"] == 0 || verdicts["missed redis"] > 0 {
		t.Errorf("ticks that came due while the replica was stopped: %v", verdicts)
	}
	stopAll(t, []*replica{r})
}
