package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// recovered is a job whose first attempts do not end by themselves; each later attempt must see in its environment
// that it is a recovery.
const recovered = `
[jobs.long]
schedule = "*/20 * * * * *"
command = 'test "$CRONCLAVE_ATTEMPT" = 1 && exec "$SCRIBE" -for 1m -beat 50ms; test "$CRONCLAVE_TRIGGER" = recovery && exec "$SCRIBE"'
recover = true
`

// wantRecovered waits for the second attempt of a tick, which must be ok, and checks that it was made once, elsewhere, with a greater token, and
// when nothing was left of the first.
func (c *cluster) wantRecovered(t *testing.T, first line, died string) (second line) {
	t.Helper()
	second = c.await(t, soon, "long", "second attempt", func(l line) bool { return l.Event == "start" && l.Attempt == 2 })
	if second.key() != first.key() || second.Replica == first.Replica || second.Token <= first.Token || second.RunID == first.RunID {
		t.Errorf("not the same tick elsewhere with a greater token:\n%s", text([]line{first, second}))
	}
	c.awaitRun(t, soon, "long", "end of the second attempt", func(r pastRun) bool { return r.RunID == second.RunID && r.Outcome != "running" })
	var told []string
	for _, r := range c.history(t, "long") {
		if r.Tick.Unix() == first.Tick {
			told = append(told, fmt.Sprint(r.Attempt, " ", r.Trigger, " ", r.verdict()))
		}
	}
	slices.Sort(told)
	if want := []string{"1 schedule " + died, "2 recovery ok"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	var lines []line
	for _, l := range c.lines(t, "long") {
		if l.key() == first.key() {
			lines = append(lines, l)
		}
	}
	if starts := event("start", lines); len(starts) != 2 {
		t.Errorf("%d starts, want 2:\n%s", len(starts), text(starts))
	}
	checkAttempts(t, lines, c.history(t, "long"))
	checkAlone(t, lines)
	return second
}

// wantAbandoned demands the levels at which all replicas together have logged that a run was abandoned.
func wantAbandoned(t *testing.T, replicas []*replica, run string, levels ...string) {
	t.Helper()
	var said []string
	for _, r := range replicas {
		for _, e := range r.LogEntries() {
			if e["run_id"] == run && strings.HasPrefix(e.Message(), "run abandoned") {
				said = append(said, fmt.Sprint(e["level"]))
			}
		}
	}
	if !slices.Equal(said, levels) {
		t.Errorf("logged that run %s was abandoned at %q, want %q", run, said, levels)
	}
}

// A run whose replica is killed is recovered by another within the lease and a second.
// Promise: P5
func TestRecoveryAfterKill(t *testing.T) {
	slow(t)
	t.Parallel()
	const lease = 3 * time.Second
	c := newCluster(t, recovered+`lease = "3s"`)
	replicas := c.startAll(t, 3)
	first := c.awaitTick(t, 2*soon, "long", 0)
	named(t, replicas, first.Replica).Kill(t)
	killed := redisTime(t, c.Client)
	took := c.wantRecovered(t, first, "abandoned").At().Sub(killed)
	wantAbandoned(t, replicas, first.RunID, "warn")
	if took > lease+time.Second+slack {
		t.Errorf("it took %v, with a lease of %v", took, lease)
	}
	t.Logf("lease %v: run again %v after the kill", lease, took.Round(time.Millisecond))
}

// A run that a draining replica has to stop is recovered by another at once, however long the lease.
// Promise: P5
func TestRecoveryAfterDrain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "[replica]\ndrain_timeout = \"3s\"\n"+recovered+"lease = \"1m\"\nkill_grace = \"1s\"")
	replicas := c.startAll(t, 3)
	first := c.awaitTick(t, 2*soon, "long", 0)
	r := named(t, replicas, first.Replica)
	r.Term(t)
	second := c.wantRecovered(t, first, "canceled drain")
	r.wantDrained(t)
	wantAbandoned(t, replicas, first.RunID)
	stopped := latest(of(first.RunID, c.lines(t, "long")))
	took := second.At().Sub(stopped)
	if took > time.Second+slack {
		t.Errorf("it took %v after the end of the first attempt", took)
	}
	t.Logf("run again %v after the end of the first attempt", took.Round(time.Millisecond))
}
