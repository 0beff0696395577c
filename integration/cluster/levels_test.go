package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// Failures, time-outs, retries and lost runs are each logged once, at the level that they deserve. A try that was
// followed by another is not an outcome.
func TestFailuresSpeak(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
server = { listen = "127.0.0.1:0" }

[jobs.bad]
schedule = "* * * * * *"
command = "exit 3"

[jobs.late]
schedule = "*/3 * * * * *"
command = 'exec "$SCRIBE" -for 1m'
timeout = "1s"

[jobs.moody]
schedule = "*/4 * * * * *"
command = 'test "$CRONCLAVE_ATTEMPT" = 3'
retry = { max = 3, delay = "100ms" }

[jobs.long]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 5m'
lease = "2s"
`)
	replicas := c.StartAll(t, 3)
	long := c.AwaitTick(t, harness.Soon, "long", 0)
	good := c.AwaitRun(t, harness.StartTimeout, "moody", "good end", func(r harness.PastRun) bool { return r.Outcome == "ok" })
	c.AwaitRun(t, harness.Soon, "bad", "failure", func(r harness.PastRun) bool { return r.Outcome == "failed" })
	c.AwaitRun(t, harness.Soon, "late", "timeout", func(r harness.PastRun) bool { return r.Outcome == "timeout" })
	c.WantTriesApart(t, good, replicas)

	victim := harness.ReplicaNamed(t, replicas, long.Replica)
	victim.Kill(t)
	others := slices.DeleteFunc(slices.Clone(replicas), func(r *harness.Replica) bool { return r == victim })
	lost := func() (lines []harness.LogEntry) {
		for _, r := range others {
			lines = append(lines, slices.DeleteFunc(r.LogEntries(), func(e harness.LogEntry) bool { return e.Message() != "replica lost" })...)
		}
		return lines
	}
	harness.Eventually(t, harness.StartTimeout, "word of the lost replica", func() bool { return len(lost()) > 0 })
	c.WantProblems(t, victim.Name)
	for _, r := range others { // no need to wait for the run that has taken its place
		r.Kill(t)
	}
	if lines := lost(); len(lines) != 1 || lines[0]["level"] != "warn" || lines[0]["replica_lost"] != victim.Name || lines[0]["last_seen"] == nil {
		t.Errorf("of the lost replica %s the log says %v", victim.Name, lines)
	}
	since := map[string]bool{}
	levels := map[string]map[string]bool{}
	for _, r := range replicas {
		for _, e := range r.LogEntries() {
			what := strings.TrimSpace(fmt.Sprintln(e["job"], e.Message(), e["outcome"]))
			if levels[what] == nil {
				levels[what] = map[string]bool{}
			}
			levels[what][fmt.Sprint(e["level"])] = true
			if what == "bad finished failed" {
				since[fmt.Sprint(e["failing_since"])] = true
			}
		}
	}
	if len(since) != 1 || since["<nil>"] {
		t.Errorf("job bad fails since %v", since)
	}
	for what, level := range map[string]string{"bad finished failed": "error", "late finished timeout": "error", "moody try failed failed": "info", "moody finished ok": "info",
		"long run abandoned: its holder is gone <nil>": "error"} {
		if len(levels[what]) != 1 || !levels[what][level] {
			t.Errorf("%q is logged at %v, want %s", what, levels[what], level)
		}
	}
}
