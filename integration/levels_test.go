package integration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Failures, time-outs, retries and lost runs are each logged once, at the level that they deserve. A try that was
// followed by another is not an outcome.
func TestFailuresSpeak(t *testing.T) {
	slow(t)
	t.Parallel()
	c := newCluster(t, `
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
	replicas := c.startAll(t, 3)
	long := c.awaitTick(t, soon, "long", 0)
	good := c.awaitRun(t, startTimeout, "moody", "good end", func(r pastRun) bool { return r.Outcome == "ok" })
	c.awaitRun(t, soon, "bad", "failure", func(r pastRun) bool { return r.Outcome == "failed" })
	c.awaitRun(t, soon, "late", "timeout", func(r pastRun) bool { return r.Outcome == "timeout" })
	c.wantTriesApart(t, good, replicas)

	victim := named(t, replicas, long.Replica)
	victim.Kill(t)
	others := slices.DeleteFunc(slices.Clone(replicas), func(r *replica) bool { return r == victim })
	lost := func() (lines []logEntry) {
		for _, r := range others {
			lines = append(lines, slices.DeleteFunc(r.LogEntries(), func(e logEntry) bool { return e.Message() != "replica lost" })...)
		}
		return lines
	}
	eventually(t, startTimeout, "word of the lost replica", func() bool { return len(lost()) > 0 })
	c.wantProblems(t, victim.Name)
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

// wantTriesApart demands that a run that was good at its third try says so everywhere, and that its tries are no outcomes.
func (c *cluster) wantTriesApart(t *testing.T, good pastRun, replicas []*replica) {
	t.Helper()
	if good.Attempt != 3 || good.FailedTries != 2 || good.Retried {
		t.Errorf("the history has %+v", good)
	}
	for _, r := range c.history(t, "moody") {
		if r.Outcome == "failed" && !r.Retried {
			t.Errorf("a try counts as a run: %+v", r)
		}
	}
	c.command(t, "history", "moody").want(t, 0, "(after 2 failed tries)")
	c.command(t, "history", "moody").want(t, 0, "exit code 1 (tried again)")
	var pages strings.Builder
	eventually(t, soon, "failed tries in the metrics", func() bool {
		pages.Reset()
		for _, r := range replicas {
			_, page := get(t, r.metricsURL(t), "")
			pages.WriteString(page)
		}
		return regexp.MustCompile(`cronclave_tries_failed_total\{job_name="moody"\} [1-9]`).MatchString(pages.String())
	})
	if regexp.MustCompile(`cronclave_outcomes_total\{job_name="moody",outcome="failed"\} [1-9]`).MatchString(pages.String()) {
		t.Error("failed tries are counted as outcomes")
	}
	eventually(t, soon, "status of a run that is over", func() bool {
		return strings.Contains(c.command(t, "status").stdout, ", tried 3x")
	})
}

// wantProblems waits until status puts the lost replica first, and then the jobs that fail. A tick that a busy machine misses takes the place of a failure
// until the next one.
func (c *cluster) wantProblems(t *testing.T, lost string) {
	t.Helper()
	eventually(t, startTimeout, "problems in status --json", func() bool {
		found := map[string]bool{}
		for _, p := range c.status(t).Problems {
			found[p.Level+" "+p.Code+" "+p.Job+p.Replica] = p.Since != nil
		}
		return found["error job_failed bad"] && found["error job_failed late"] && found["warning replica_lost "+lost]
	})
	eventually(t, startTimeout, "problems in the text of status --check", func() bool {
		shown := c.command(t, "status", "--check")
		for _, want := range []string{"\n✗ job bad failed on ", "\n✗ job late timeout on ", "\n\n! the registration of replica " + lost + " expired", "\n" + lost + " +lost +"} {
			if !regexp.MustCompile(want).MatchString(shown.stdout) {
				return false
			}
		}
		return shown.code == 1
	})
	eventually(t, startTimeout, "the jobs that failed, and no other", func() bool {
		only := c.command(t, "status", "--failed").stdout
		return strings.Contains(only, "\nbad ") && !strings.Contains(only, "\nmoody ")
	})
	c.command(t, "status", "moody", "--zone", "Asia/Tokyo").want(t, 0, " JST ")
}
