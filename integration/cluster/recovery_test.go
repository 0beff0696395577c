package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// recovered is a job whose first attempts do not end by themselves; each later attempt must see in its environment
// that it is a recovery.
const recovered = `
[jobs.long]
schedule = "*/20 * * * * *"
command = 'test "$CRONCLAVE_ATTEMPT" = 1 && exec "$SCRIBE" -for 1m -beat 50ms; test "$CRONCLAVE_TRIGGER" = recovery && exec "$SCRIBE"'
recover = true
`

// wantAbandoned demands the levels at which all replicas together have logged that a run was abandoned.
func wantAbandoned(t *testing.T, replicas []*harness.Replica, run string, levels ...string) {
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
	testtier.Slow(t)
	t.Parallel()
	const lease = 3 * time.Second
	c := harness.NewCluster(t, recovered+`lease = "3s"`)
	replicas := c.StartAll(t, 3)
	first := c.AwaitTick(t, 2*harness.Soon, "long", 0)
	harness.ReplicaNamed(t, replicas, first.Replica).Kill(t)
	killed := harness.RedisTime(t, c.Client)
	took := c.WantRecovered(t, first, "abandoned").At().Sub(killed)
	wantAbandoned(t, replicas, first.RunID, "warn")
	if took > lease+time.Second+harness.Slack {
		t.Errorf("it took %v, with a lease of %v", took, lease)
	}
	t.Logf("lease %v: run again %v after the kill", lease, took.Round(time.Millisecond))
}

// A run that a draining replica has to stop is recovered by another at once, however long the lease.
// Promise: P5
func TestRecoveryAfterDrain(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, "[replica]\ndrain_timeout = \"3s\"\n"+recovered+"lease = \"1m\"\nkill_grace = \"1s\"")
	replicas := c.StartAll(t, 3)
	first := c.AwaitTick(t, 2*harness.Soon, "long", 0)
	r := harness.ReplicaNamed(t, replicas, first.Replica)
	r.Term(t)
	second := c.WantRecovered(t, first, "canceled drain")
	r.WantDrained(t)
	wantAbandoned(t, replicas, first.RunID)
	stopped := harness.LatestAt(harness.RunLines(first.RunID, c.Lines(t, "long")))
	took := second.At().Sub(stopped)
	if took > time.Second+harness.Slack {
		t.Errorf("it took %v after the end of the first attempt", took)
	}
	t.Logf("run again %v after the end of the first attempt", took.Round(time.Millisecond))
}
