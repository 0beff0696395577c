package integration

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A replica that can open no more files starts no run and leaves its ticks to others. Each tick runs once, and none
// has failed; status and the log name the replica, which goes on when it can again.
func TestSickReplicaLeavesItsTicksToOthers(t *testing.T) {
	slow(t)
	t.Parallel()
	const job = `
[jobs.%s]
schedule = "* * * * * *"
start_deadline = "30s"
parallel = 20
per_tick = 1
command = '"$SCRIBE" -for 100ms'
`
	c := newCluster(t, fmt.Sprintf(job, "a")+fmt.Sprintf(job, "b")+fmt.Sprintf(job, "c"))
	replicas := c.startAll(t, 3)
	sick := replicas[0]
	ranOn := func(job string, since time.Time) (n int) {
		for _, l := range starts(c.lines(t, job)) {
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
	eventually(t, soon, "runs on the replica", runsSince(time.Time{}))

	before := starve(t, sick.PID)
	sick.WaitLog(t, soon, "word that nothing can be started", message("cannot start programs"))
	eventually(t, soon, "a warning that names the replica", func() bool {
		all := c.warnings(t, "cannot_start")
		return len(all) == 1 && strings.Contains(all[0], "replica "+sick.Name+" ") && strings.Contains(all[0], "too many open files")
	})
	at := redisTime(t, c.Client)
	awaitTime(t, c.Client, at.Add(5*time.Second))
	for _, job := range jobs {
		if n := ranOn(job, at); n > 0 {
			t.Errorf("%d runs of %s on a replica that can start nothing", n, job)
		}
	}

	limitFiles(t, sick.PID, before)
	sick.WaitLog(t, time.Minute+soon, "word that programs can be started again", message("programs start again"))
	eventually(t, soon, "runs on the replica", runsSince(redisTime(t, c.Client)))
	eventually(t, soon, "no warning any more", func() bool { return len(c.warnings(t, "cannot_start")) == 0 })
	stopAll(t, replicas)
	for _, job := range jobs {
		c.checkEachTickOnce(t, job)
	}
}

// A replica without a free descriptor ends its run all the same, after its command has ended and when it is to be
// killed.
func TestStarvedReplicaEndsItsRun(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{"ends": `'"$SCRIBE" -for 4s'`, "hangs": `'"$SCRIBE" -for 10m -ignore-term -child'` + "\ntimeout = '4s'\nkill_grace = '1s'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "[jobs.a]\nschedule = '* * * * * *'\ncommand = "+command+"\n")
			r := c.startAll(t, 1)[0]
			run := c.awaitTick(t, soon, "a", 0)
			before := limitFiles(t, r.PID, 0)
			r.WaitLog(t, 2*soon, "end of the run", func(e logEntry) bool { return e.Message() == "finished" && e["run_id"] == run.RunID })
			limitFiles(t, r.PID, before)
			wantDead(t, c.lines(t, "a"))
			stopAll(t, []*replica{r})
		})
	}
}

// starve leaves a process two files to open, in a moment in which it runs nothing: a run takes more. It returns how many the
// process might have open before.
func starve(t *testing.T, pid int) (before uint64) {
	t.Helper()
	quiet, samples := openFiles(t, pid), 0
	eventually(t, soon, "samples of open files", func() bool {
		quiet, samples = min(quiet, openFiles(t, pid)), samples+1
		return samples > 30
	})
	eventually(t, soon, "a moment without runs", func() bool {
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

// checkEachTickOnce demands that no tick between the first and the last that ran is missing, none ran twice, and each run ended ok at its first attempt.
func (c *cluster) checkEachTickOnce(t *testing.T, job string) {
	t.Helper()
	runs := starts(c.lines(t, job))
	checkOnce(t, runs, 1)
	ticks := map[int64]bool{}
	first, last := runs[0].Tick, runs[0].Tick
	for _, l := range runs {
		ticks[l.Tick] = true
		first, last = min(first, l.Tick), max(last, l.Tick)
	}
	for tick := first; tick <= last; tick++ {
		if !ticks[tick] {
			t.Errorf("tick %d of %s did not run", tick, job)
		}
	}
	for _, r := range c.history(t, job) {
		if r.Outcome != "ok" || r.Attempt != 1 {
			t.Errorf("%s: tick %v is %s (%s), attempt %d", job, r.Tick, r.Outcome, r.Reason, r.Attempt)
		}
	}
}
