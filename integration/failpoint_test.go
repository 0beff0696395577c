package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
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
	slow(t)
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
			c := newCluster(t, parent+fmt.Sprintln("recover =", recovered))
			c.makeKnown(t, "child") // else the first tick may be of before its schedule, which is announced after that of parent
			killed := c.killAt(t, "parent", point, 2)
			for _, job := range []string{"parent", "child"} {
				c.awaitTick(t, startTimeout, job, killed+9)
			}
			if got := c.toldOf(t, "parent", killed); !slices.Equal(got, want.told) {
				t.Errorf("told %q, want %q", got, want.told)
			}
			c.wantRuns(t, "parent", killed, want.runs)
			c.wantRuns(t, "child", killed, want.children)
			c.checkTokensGrow(t, starts(c.lines(t, "parent")))
		})
	}
}

// A replica that starts records the settled ticks that a killed replica did not record. The test kills the only
// replica when the server has settled ticks that are not run.
// Promise: P6
func TestLoneReplicaKilledAfterASettlement(t *testing.T) {
	slow(t)
	t.Parallel()
	for name, told := range map[string]string{"settled": "0 skipped overlap", "gap": "0 missed down"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "[jobs.often]\nschedule = \"* * * * * *\"\nstart_deadline = \"1s\"\nlease = \"2s\"\ncommand = '\"$SCRIBE\" -for 2500ms'\n")
			if name == "gap" { // which a replica before leaves
				c.makeKnown(t, "often")
				missed := time.Now().Add(3 * time.Second).Truncate(time.Second)
				eventually(t, startTimeout, "ticks that no replica decides", func() bool { return time.Now().After(missed.Add(1500 * time.Millisecond)) })
			}
			killed := c.killAt(t, "often", name, 1)
			if got := c.toldOf(t, "often", killed); len(got) > 0 {
				t.Fatalf("told before: %q", got)
			}
			c.start(t, "next")
			eventually(t, startTimeout, "the record of the tick", func() bool { return len(c.toldOf(t, "often", killed)) > 0 })
			if got := c.toldOf(t, "often", killed); !slices.Equal(got, []string{told}) {
				t.Errorf("told %q, want %q", got, told)
			}
		})
	}
}

// makeKnown runs a replica until a job has run, whose lock knows its schedule from then on.
func (c *cluster) makeKnown(t *testing.T, job string) {
	t.Helper()
	before := c.start(t, "before")
	c.awaitTick(t, startTimeout, job, 0)
	before.Term(t)
	before.wantDrained(t)
}

// killAt starts replicas, and returns at which tick of a job one of them was killed at a point.
func (c *cluster) killAt(t *testing.T, job, point string, replicas int) (tick int64) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "killed")
	c.program, c.env = armedProgram, append(c.env, "CRONCLAVE_FAILPOINTS="+job+"="+point+":"+file)
	all := c.startAll(t, replicas)
	eventually(t, startTimeout, "death of a replica", func() bool { return slices.ContainsFunc(all, (*replica).Ended) })
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal("it did not die at its failpoint: ", err)
	}
	if tick, err = strconv.ParseInt(string(text), 10, 64); err != nil {
		t.Fatal(err)
	}
	return tick
}

// toldOf returns the record of the history for each attempt at a tick.
func (c *cluster) toldOf(t *testing.T, job string, tick int64) (told []string) {
	t.Helper()
	for _, r := range c.history(t, job) {
		if r.Tick.Unix() == tick {
			told = append(told, fmt.Sprint(r.Attempt, " ", r.verdict()))
		}
	}
	slices.Sort(told)
	return told
}

func (c *cluster) wantRuns(t *testing.T, job string, tick int64, want int) {
	t.Helper()
	runs := starts(slices.DeleteFunc(c.lines(t, job), func(l line) bool { return l.Tick != tick }))
	if len(runs) != want {
		t.Errorf("tick %d of %s was run %d times, want %d:\n%s", tick, job, len(runs), want, text(runs))
	}
}
