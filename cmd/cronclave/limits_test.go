package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/process"
)

// placeWithLimits makes a cgroup in which a replica can keep limits, and returns the prefix of a command that starts it there. A machine without such
// a place fails the test with CRONCLAVE_TEST_LIMITS=1, as make vm sets it. The test itself is moved meanwhile, so no other may run beside it.
func placeWithLimits(t *testing.T) (inside []string, able bool) {
	t.Helper()
	host, err := process.NewHost(process.HostConfig{Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := host.Check(process.Spec{Limits: process.Limits{Memory: 1 << 30, Pids: 100}}); err != nil {
		if os.Getenv("CRONCLAVE_TEST_LIMITS") == "1" {
			t.Fatal("this machine is said to keep limits: ", err)
		}
		t.Log("only that limits are refused is tested: ", err)
		return nil, false
	}
	// We have left the cgroup around that of the host, so it has controllers for others below it.
	place, err := os.MkdirTemp(filepath.Dir(strings.TrimPrefix(host.Isolation(), "cgroup v2 at ")), "place-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(place); err != nil {
			t.Errorf("the replica has left something: %v", err)
		}
	})
	return []string{"sh", "-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, place}, true
}

// TestLimitsAreKeptOrRefused by a replica and by exec, whichever this machine can do.
func TestLimitsAreKeptOrRefused(t *testing.T) {
	inside, able := placeWithLimits(t)
	line := execLine(t, "", `command = "echo up"`+"\nlimits.pids = 100\n")
	p := startProcess(t, nil, append(inside, line...)...)
	if able {
		p.read(t, "^up$")
		p.end(t, 0)
		return
	}
	replica := startProcess(t, nil, "cronclave", "run", line[3], line[4], "--redis", "redis://127.0.0.1:1/0") // which it does not get to
	for _, p := range []*program{p, replica} {
		p.end(t, 2)
		if said := p.stderr.String(); !strings.Contains(said, "jobs.toml:1: job j: limits can't be kept on this machine: ") {
			t.Errorf("it does not say what it can't do:\n%s", said)
		}
	}
}

// greedyJobs are one that needs more memory than it may have, one that starts more processes, and one that is content.
const greedyJobs = `
[defaults]
schedule = "* * * * * *"
limits = { memory = "64MiB", pids = 32 }
[jobs.memory]
command = """awk 'BEGIN { s = "x"; while (length(s) < 268435456) s = s s; print "survived" }'; echo survived"""
[jobs.forks]
command = 'n=0; while [ $n -lt 100 ]; do sleep 1000 & n=$((n+1)); done; echo survived'
[jobs.content]
command = "echo fine"
`

// TestLimitsOfJobs end the runs that need more, say why, and do no harm to other runs nor to the replica.
// Promise: P9
func TestLimitsOfJobs(t *testing.T) {
	inside, able := placeWithLimits(t)
	file := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(file, []byte(greedyJobs), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startRedis(t)
	p := startProcess(t, nil, append(inside, "cronclave", "run", "--config", file, "--redis", s.URL())...)
	if !able {
		p.end(t, 2)
		if said := p.stderr.String(); strings.Count(said, "limits can't be kept on this machine: ") != 3 {
			t.Errorf("it does not say what it can't do:\n%s", said)
		}
		return
	}
	const starved = "out of memory (limits.memory is 64MiB): ended by SIGKILL"
	over := func(r ended) bool { return !r.Started.IsZero() && r.Outcome != "running" }
	hungry := awaitRun(t, s.URL(), "memory", over)
	if hungry.Outcome != "failed" || hungry.Reason != starved || hungry.Output != "" {
		t.Errorf("who needs too much memory: %+v", hungry)
	}
	numerous := awaitRun(t, s.URL(), "forks", over)
	if numerous.Outcome != "failed" || !strings.HasPrefix(numerous.Reason, "exit code ") || !strings.Contains(strings.ToLower(numerous.Output), "fork") {
		t.Errorf("who needs too many processes: %+v", numerous)
	}
	awaitRun(t, s.URL(), "content", func(r ended) bool {
		return r.Outcome == "ok" && r.Output == "fine\n" && r.Started.After(hungry.Finished) && r.Started.After(numerous.Finished)
	})
	p.signal(t, syscall.SIGTERM)
	p.end(t, 0)
	p.nothingLeft(t)
}

// placeWithMemory makes a cgroup whose processes have so many bytes of memory together, and returns the prefix of a command that starts it there. The memory
// controller of version 1 is used if the machine has it there, and that of version 2 otherwise.
func placeWithMemory(t *testing.T, bytes string) (inside []string) {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(own)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 && fields[1] == "memory" {
			place, err := os.MkdirTemp(filepath.Join("/sys/fs/cgroup/memory", fields[2]), "place-")
			if err != nil {
				t.Skipf("only root on Linux makes a cgroup of version 1 with a memory limit: %v", err)
			}
			t.Cleanup(func() {
				if err := os.Remove(place); err != nil {
					t.Errorf("the replica has left something: %v", err)
				}
			})
			limitMemory(t, place, bytes, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
			return []string{"sh", "-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, place}
		}
	}
	inside, able := placeWithLimits(t)
	if !able {
		t.Skip("this machine gives us no cgroup with a memory limit; make vm has one")
	}
	limitMemory(t, inside[len(inside)-1], bytes, "memory.max", "memory.swap.max")
	return inside
}

// limitMemory writes the limit to the first file, and to the second, for swap, if the kernel has it.
func limitMemory(t *testing.T, place, bytes, memory, swap string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(place, memory), []byte(bytes), 0); err != nil {
		t.Fatal(err)
	}
	if swap == "memory.swap.max" {
		bytes = "0"
	}
	if err := os.WriteFile(filepath.Join(place, swap), []byte(bytes), 0); err != nil {
		t.Log("swap is not limited: ", err)
	}
}

// TestOutOfMemoryOutsideLimits has the kernel kill a job for the memory of its replica's cgroup: the record of the run says so, and the replica goes on.
func TestOutOfMemoryOutsideLimits(t *testing.T) {
	inside := placeWithMemory(t, "402653184")
	file := filepath.Join(t.TempDir(), "jobs.toml")
	const job = `[jobs.hungry]
schedule = "* * * * * *"
command = ["sh", "-c", '''echo 1000 >/proc/self/oom_score_adj && exec awk 'BEGIN { s = "x"; while (length(s) < 1073741824) s = s s; print "survived" }'''']
` // so that the kernel chooses the job, and not the replica, which the race detector makes big
	if err := os.WriteFile(file, []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startRedis(t)
	p := startProcess(t, nil, append(inside, "cronclave", "run", "--config", file, "--redis", s.URL())...)
	over := func(r ended) bool { return !r.Started.IsZero() && r.Outcome != "running" }
	killed := awaitRun(t, s.URL(), "hungry", over)
	want := regexp.MustCompile(`^ended by SIGKILL; meanwhile the kernel killed processes of the replica's cgroup because memory ran out \(oom_kill rose by [1-9][0-9]*\)$`)
	if killed.Outcome != "failed" || !want.MatchString(killed.Reason) || killed.Output != "" {
		t.Errorf("%+v, want the reason %q", killed, want)
	}
	awaitRun(t, s.URL(), "hungry", func(r ended) bool { return over(r) && r.Started.After(killed.Finished) && want.MatchString(r.Reason) })
	p.signal(t, syscall.SIGTERM)
	p.end(t, 0)
	p.nothingLeft(t)
}

// ended is what the history has of a run.
type ended struct {
	Outcome, Reason, Output string
	Started, Finished       time.Time
}

// awaitRun waits until a run of a job is such a one.
func awaitRun(t *testing.T, url, job string, such func(ended) bool) ended {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var runs []ended
	for limit := time.After(longestProcess); ; {
		var out, said bytes.Buffer
		// Before the replica has told of its jobs there is no such job.
		if runCommandLine(t.Context(), []string{"history", job, "--json", "--output", "--redis", url}, streams{out: &out, err: &said}) == 0 {
			runs = nil
			if err := json.Unmarshal(out.Bytes(), &runs); err != nil {
				t.Fatal(err)
			}
		}
		for i := len(runs) - 1; i >= 0; i-- {
			if such(runs[i]) {
				return runs[i]
			}
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("no such run of %s: %+v\n%s", job, runs, &said)
		}
	}
}
