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

// parent is a job with another after it.
const parent = `
[defaults]
lease = "2s"
start_deadline = "1m"
command = '"$SCRIBE" -for 50ms'

[jobs.child]
after = ["parent"]

[jobs.parent]
schedule = "*/3 * * * * *"
`

// A replica that is killed between any two steps of a run costs no tick its outcome. Without recovery the tick runs
// at most once, with it at least once, and the job after it runs exactly once. A failpoint kills the replica that has
// won the tick, as kill -9 does.
// Promise: P5, P6
func TestKilledAtTheWorstMoment(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, want := range map[string]struct {
		runs     int      // of the tick
		told     []string // of each attempt, by the history
		children int      // runs of the job after it
	}{
		"granted":                {0, []string{"1 abandoned"}, 0}, // and not started
		"ended":                  {1, []string{"1 abandoned"}, 0}, // and not recorded
		"told":                   {1, []string{"1 ok"}, 1},        // to the cluster, and not recorded
		"recorded":               {1, []string{"1 ok"}, 1},        // and not released
		"released":               {1, []string{"1 ok"}, 1},        // the instant at which the job after it is due
		"granted and recovered":  {1, []string{"1 abandoned", "2 ok"}, 1},
		"ended and recovered":    {2, []string{"1 abandoned", "2 ok"}, 1},
		"told and recovered":     {1, []string{"1 ok"}, 1},
		"recorded and recovered": {1, []string{"1 ok"}, 1},
		"released and recovered": {1, []string{"1 ok"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			point, _, recovered := strings.Cut(name, " and ")
			c := harness.NewCluster(t, parent+fmt.Sprintln("recover =", recovered))
			c.MakeKnown(t, "child") // else the first tick may be of before its schedule, which is announced after that of parent
			killed := c.KillAt(t, "parent", point, 2)
			for _, job := range []string{"parent", "child"} {
				c.AwaitTick(t, harness.StartTimeout, job, killed+9)
			}
			if got := c.ToldOf(t, "parent", killed); !slices.Equal(got, want.told) {
				t.Errorf("told %q, want %q", got, want.told)
			}
			c.WantRuns(t, "parent", killed, want.runs)
			c.WantRuns(t, "child", killed, want.children)
			c.CheckTokensGrow(t, harness.Starts(c.Lines(t, "parent")))
		})
	}
}

// A replica that starts records the settled ticks that a killed replica did not record. The test kills the only
// replica when the server has settled ticks that are not run.
// Promise: P6
func TestLoneReplicaKilledAfterASettlement(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, told := range map[string]string{"settled": "0 skipped overlap", "gap": "0 missed down"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := harness.NewCluster(t, "[jobs.often]\nschedule = \"* * * * * *\"\nstart_deadline = \"1s\"\nlease = \"2s\"\ncommand = '\"$SCRIBE\" -for 2500ms'\n")
			if name == "gap" { // which a replica before leaves
				c.MakeKnown(t, "often")
				missed := time.Now().Add(3 * time.Second).Truncate(time.Second)
				harness.Eventually(t, harness.StartTimeout, "ticks that no replica decides", func() bool { return time.Now().After(missed.Add(1500 * time.Millisecond)) })
			}
			killed := c.KillAt(t, "often", name, 1)
			if got := c.ToldOf(t, "often", killed); len(got) > 0 {
				t.Fatalf("told before: %q", got)
			}
			c.Start(t, "next")
			harness.Eventually(t, harness.StartTimeout, "the record of the tick", func() bool { return len(c.ToldOf(t, "often", killed)) > 0 })
			if got := c.ToldOf(t, "often", killed); !slices.Equal(got, []string{told}) {
				t.Errorf("told %q, want %q", got, told)
			}
		})
	}
}
