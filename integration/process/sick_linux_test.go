package process

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// A replica that can open no more files starts no run and leaves its ticks to others. Each tick runs once, and none
// has failed; status and the log name the replica, which goes on when it can again.
func TestSickReplicaLeavesItsTicksToOthers(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const job = `
[jobs.%s]
schedule = "* * * * * *"
start_deadline = "30s"
parallel = 20
per_tick = 1
command = '"$SCRIBE" -for 100ms'
`
	c := harness.NewCluster(t, fmt.Sprintf(job, "a")+fmt.Sprintf(job, "b")+fmt.Sprintf(job, "c"))
	replicas := c.StartAll(t, 3)
	sick := replicas[0]
	ranOn := func(job string, since time.Time) (n int) {
		for _, l := range harness.Starts(c.Lines(t, job)) {
			if l.Replica == sick.Name && l.At().After(since) {
				n++
			}
		}
		return n
	}
	jobs := []string{"a", "b", "c"}
	runsSince := func(since time.Time) func() bool {
		return func() bool { return slices.ContainsFunc(jobs, func(job string) bool { return ranOn(job, since) > 0 }) }
	}
	harness.Eventually(t, harness.Soon, "runs on the replica", runsSince(time.Time{}))

	before := starve(t, sick.PID)
	sick.WaitLog(t, harness.Soon, "word that nothing can be started", harness.MessageHas("cannot start programs"))
	harness.Eventually(t, harness.Soon, "a warning that names the replica", func() bool {
		all := c.Warnings(t, "cannot_start")
		return len(all) == 1 && strings.Contains(all[0], "replica "+sick.Name+" ") && strings.Contains(all[0], "too many open files")
	})
	at := harness.RedisTime(t, c.Client)
	harness.AwaitTime(t, c.Client, at.Add(5*time.Second))
	for _, job := range jobs {
		if n := ranOn(job, at); n > 0 {
			t.Errorf("%d runs of %s on a replica that can start nothing", n, job)
		}
	}

	limitFiles(t, sick.PID, before)
	sick.WaitLog(t, time.Minute+harness.Soon, "word that programs can be started again", harness.MessageHas("programs start again"))
	harness.Eventually(t, harness.Soon, "runs on the replica", runsSince(harness.RedisTime(t, c.Client)))
	harness.Eventually(t, harness.Soon, "no warning any more", func() bool { return len(c.Warnings(t, "cannot_start")) == 0 })
	harness.StopAll(t, replicas)
	for _, job := range jobs {
		c.CheckEachTickOnce(t, job)
	}
}

// A replica without a free descriptor ends its run all the same, after its command has ended and when it is to be
// killed.
func TestStarvedReplicaEndsItsRun(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, command := range map[string]string{"ends": `'"$SCRIBE" -for 4s'`, "hangs": `'"$SCRIBE" -for 10m -ignore-term -child'` + "\ntimeout = '4s'\nkill_grace = '1s'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := harness.NewCluster(t, "[jobs.a]\nschedule = '* * * * * *'\ncommand = "+command+"\n")
			r := c.StartAll(t, 1)[0]
			run := c.AwaitTick(t, harness.Soon, "a", 0)
			before := limitFiles(t, r.PID, 0)
			r.WaitLog(t, 2*harness.Soon, "end of the run", func(e harness.LogEntry) bool { return e.Message() == "finished" && e["run_id"] == run.RunID })
			limitFiles(t, r.PID, before)
			harness.WantDead(t, c.Lines(t, "a"))
			harness.StopAll(t, []*harness.Replica{r})
		})
	}
}

// starve leaves a process two files to open, in a moment in which it runs nothing: a run takes more. It returns how many the
// process might have open before.
func starve(t *testing.T, pid int) (before uint64) {
	t.Helper()
	quiet, samples := openFiles(t, pid), 0
	harness.Eventually(t, harness.Soon, "samples of open files", func() bool {
		quiet, samples = min(quiet, openFiles(t, pid)), samples+1
		return samples > 30
	})
	harness.Eventually(t, harness.Soon, "a moment without runs", func() bool {
		if openFiles(t, pid) > quiet {
			return false
		}
		before = limitFiles(t, pid, quiet+2)
		if openFiles(t, pid) <= quiet {
			return true
		}
		limitFiles(t, pid, before)
		return false
	})
	return before
}

// openFiles is how many files a process has open.
func openFiles(t *testing.T, pid int) uint64 {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return uint64(len(open))
}

// limitFiles sets how many files a process may have open, and returns how many it might have before.
func limitFiles(t *testing.T, pid int, most uint64) (before uint64) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: limit.Max}, nil); err != nil {
		t.Fatal(err)
	}
	return limit.Cur
}
