package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/command"
)

// placeWithLimits makes a cgroup in which a replica can keep limits, and returns the prefix of a command that starts it there. A machine without such
// a place fails the test with CRONCLAVE_TEST_LIMITS=1, as make vm sets it. The test itself is moved meanwhile, so no other may run beside it.
func placeWithLimits(t *testing.T) (inside []string, able bool) {
	t.Helper()
	host, err := command.NewHost(command.HostConfig{Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := host.Check(command.Spec{Limits: command.Limits{Memory: 1 << 30, Pids: 100}}); err != nil {
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
	for _, p := range []*process{p, replica} {
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
		if execute(t.Context(), []string{"history", job, "--json", "--output", "--redis", url}, streams{out: &out, err: &said}) == 0 {
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
