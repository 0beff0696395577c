package cluster

import (
	"strings"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

const beatingJob = `
[jobs.a]
schedule = "* * * * * *"
command  = 'exec "$SCRIBE"'
lease    = "2s"
`

// A replica refuses to start under the name of a living one, and starts at once under that of a crashed one.
func TestReplicasOfOneName(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t, beatingJob)
	first := c.Start(t, "one")
	c.AwaitTick(t, harness.Soon, "a", 0)
	entry := c.EntryOf(t, "one")
	second := c.Start(t, "one")
	if code := second.Wait(t, harness.Soon); code != 1 || !strings.Contains(strings.Join(second.Log(), "\n"), " runs in namespace "+c.Namespace+" since ") {
		t.Errorf("beside a living one the second exits with %d: %q", code, second.Log())
	}
	other := c.Start(t, "two")
	other.WaitLog(t, harness.Soon, "announcement", harness.Announced)

	first.Kill(t)
	third := c.Start(t, "one")
	third.WaitLog(t, harness.Soon, "take-over of the name", harness.MessageHas("stale registration replaced"))
	harness.Eventually(t, harness.Soon, "a registration of the new one alone", func() bool {
		again := c.EntryOf(t, "one")
		return again.ID != "" && again.ID != entry.ID
	})
	harness.StopAll(t, []*harness.Replica{other, third})
}

// A replica on another machine counts as living as long as its registration is renewed. Its process cannot be inspected
// from here.
func TestReplicaOfAnotherMachine(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, beatingJob)
	harness.Must(t, c.Register(t.Context(), harness.Registration{ID: "dead-1", Name: "dead", Process: "elsewhere/1/1"}))
	stop := c.KeepRegistered(t, harness.Registration{ID: "alive-1", Name: "alive", Process: "elsewhere/1/2"})
	refused, taken, running := c.Start(t, "alive"), c.Start(t, "dead"), c.Start(t, "three")
	if code := refused.Wait(t, harness.Soon); code != 1 || !strings.Contains(strings.Join(refused.Log(), "\n"), "another replica named ") {
		t.Errorf("beside a living one the second exits with %d: %q", code, refused.Log())
	}
	taken.WaitLog(t, harness.Soon, "take-over of the name", harness.MessageHas("stale registration replaced"))
	stop()

	running.WaitLog(t, harness.Soon, "announcement", harness.Announced)
	harness.Eventually(t, harness.Soon, "registration", func() bool { return c.EntryOf(t, "three").ID != "" })
	defer c.KeepRegistered(t, harness.Registration{ID: "three-1", Name: "three", Process: "elsewhere/1/3"})()
	running.WaitLog(t, harness.Soon, "a warning of the other one", harness.MessageHas("duplicate replica name"))
	harness.Eventually(t, harness.Soon, "a warning in status", func() bool {
		return strings.Contains(c.Command(t, "status").Stdout, "! 2 replicas are named three: ")
	})
	harness.StopAll(t, []*harness.Replica{taken, running})
}
