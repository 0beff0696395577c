package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/hungfs"
	"github.com/cronclave/cronclave/internal/testtier"
)

// A program on a mount that does not answer costs its own job alone: all ticks of four other jobs run, each second, with one replica and with two. The log,
// status and the history name the job, the program and the mount.
func TestProgramOnADeadMount(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d replicas", n), func(t *testing.T) {
			t.Parallel()
			dead := hungfs.New(t, map[string]string{"program": "#!/bin/sh\nexit 0\n"})
			config := fmt.Sprintf("[jobs.hung]\nschedule = \"* * * * * *\"\nlease = \"5s\"\nstart_deadline = \"3s\"\ncommand = [%q]\n", dead.Dir+"/program")
			others := []string{"a", "b", "c", "d"}
			for _, job := range others {
				config += fmt.Sprintf("\n[jobs.%s]\nschedule = \"* * * * * *\"\nstart_deadline = \"30s\"\nparallel = 20\nper_tick = 1\ncommand = '\"$SCRIBE\" -for 100ms'\n", job)
			}
			c := harness.NewCluster(t, config)
			replicas := c.StartAll(t, n)
			t.Cleanup(dead.Answer)
			c.AwaitRun(t, harness.Soon, "hung", "a run that is ok", func(r harness.PastRun) bool { return r.Outcome == "ok" })
			dead.HangOpen()
			from := harness.RedisTime(t, c.Client)
			names := func(text string) bool {
				return strings.Contains(text, "executing "+dead.Dir+"/program (mount "+dead.Dir+", fuse hungfs)")
			}
			replicas[0].WaitLog(t, time.Minute, "word of the start that hangs", func(e harness.LogEntry) bool {
				text, _ := e["error"].(string)
				return strings.HasPrefix(e.Message(), "cannot start the job") && e["job"] == "hung" && names(text)
			})
			harness.Eventually(t, time.Minute, "a warning that names job, program and mount", func() bool {
				all := c.Warnings(t, "cannot_start")
				return len(all) > 0 && strings.Contains(all[0], "cannot start job hung") && names(all[0])
			})
			c.AwaitRun(t, time.Minute, "hung", "a tick that was missed", func(r harness.PastRun) bool {
				return r.Outcome == "missed" && r.Reason == "cannot_start" && names(r.Detail)
			})
			harness.AwaitTime(t, c.Client, from.Add(20*time.Second))
			dead.Answer()
			answered := harness.RedisTime(t, c.Client)
			c.AwaitRun(t, 2*time.Minute, "hung", "a run once the mount answers", func(r harness.PastRun) bool { return r.Outcome == "ok" && r.Started.After(answered) })
			harness.StopAll(t, replicas)
			for _, job := range others {
				c.CheckEachTickOnce(t, job)
			}
		})
	}
}

// TestConfigurationOnADeadMount checks that a replica keeps running its jobs if the mount of its configuration does not answer, and logs that once. A reload on
// SIGHUP is refused, and check and a second replica exit with 2.
func TestConfigurationOnADeadMount(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, "[jobs.a]\nschedule = \"* * * * * *\"\nstart_deadline = \"30s\"\ncommand = '\"$SCRIBE\" -for 10ms'\n")
	dead := hungfs.New(t, map[string]string{"jobs.toml": c.Config})
	r := harness.StartObserved(t, "r1", "", []string{harness.QuickExit, "CRONCLAVE_REDIS=" + c.URL}, harness.Program(t, harness.CronclaveProgram),
		"run", "--config", dead.Dir+"/jobs.toml", "--replica", "r1", "--namespace", c.Namespace, "--log-format", "json")
	t.Cleanup(dead.Answer)
	c.AwaitRun(t, harness.Soon, "a", "a run that is ok", func(r harness.PastRun) bool { return r.Outcome == "ok" })
	before := len(r.LogEntries())
	dead.Hang()
	silent := func() []harness.LogEntry { // on a busy machine the mount may have taken too long before
		return slices.DeleteFunc(r.LogEntries()[before:], func(e harness.LogEntry) bool {
			return e.Message() != "configuration file cannot be read: its mount does not answer; the last version stays in use"
		})
	}
	harness.Eventually(t, time.Minute, "word of the file", func() bool { return len(silent()) > 0 })
	since := harness.RedisTime(t, c.Client)
	c.AwaitRun(t, time.Minute, "a", "runs meanwhile", func(r harness.PastRun) bool { return r.Outcome == "ok" && r.Tick.After(since.Add(5*time.Second)) })
	lines := silent()
	if text, _ := lines[0]["error"].(string); len(lines) != 1 || !strings.Contains(text, "(mount "+dead.Dir+", fuse hungfs)") || lines[0]["level"] != "warn" {
		t.Errorf("%d lines, %v", len(lines), lines[0])
	}
	r.Signal(t, syscall.SIGHUP)
	r.WaitLog(t, time.Minute, "refused reload", func(e harness.LogEntry) bool {
		text, _ := e["message"].(string)
		return e.Message() == "configuration refused; the last good one stays" && strings.Contains(text, "cannot be read: its file system does not answer (mount "+dead.Dir)
	})
	var others []*harness.Replica
	for _, args := range [][]string{{"check", dead.Dir + "/jobs.toml"}, {"run", "--config", dead.Dir + "/jobs.toml", "--replica", "r2", "--namespace", c.Namespace}} {
		p := harness.StartObserved(t, args[0], "", []string{harness.QuickExit, "CRONCLAVE_REDIS=" + c.URL}, harness.Program(t, harness.CronclaveProgram), args...)
		t.Cleanup(dead.Answer)
		harness.Eventually(t, time.Minute, "fault of "+args[0], func() bool {
			return slices.ContainsFunc(p.Log(), func(line string) bool {
				return strings.Contains(line, "cannot be read: its file system does not answer")
			})
		})
		others = append(others, p)
	}
	dead.Answer() // until then the kernel keeps a process that has asked
	for _, p := range others {
		if code := p.Wait(t, time.Minute); code != 2 {
			t.Errorf("exit code %d, want 2: %s", code, strings.Join(p.Log(), "\n"))
		}
	}
	harness.StopAll(t, []*harness.Replica{r})
	c.CheckEachTickOnce(t, "a")
}

// TestCheckOnADeadMount: check asks a dead mount once for all jobs, and has a warning at the place of each.
func TestCheckOnADeadMount(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	dead := hungfs.New(t, map[string]string{"env": "A=1\n"})
	text := "[defaults]\nschedule = \"@daily\"\ncommand = \"true\"\nuser = \"root\"\ninherit_env = false\n"
	for n := range 20 {
		text += fmt.Sprintf("[jobs.j%d]\ndir = '%s/dir-%d'\nenv_file = '%s/env-%d'\n", n, dead.Dir, n, dead.Dir, n)
	}
	path := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dead.Hang()
	said := harness.StartObserved(t, "check", "", []string{harness.QuickExit}, harness.Program(t, harness.CronclaveProgram), "check", path)
	t.Cleanup(dead.Answer)
	harness.Eventually(t, time.Minute, "end of the check", func() bool {
		return slices.ContainsFunc(said.Log(), func(line string) bool { return strings.HasSuffix(line, ": ok, 20 jobs") })
	})
	dead.Answer() // until then the kernel keeps a process that has asked
	if code := said.Wait(t, time.Minute); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for n := range 20 {
		for _, want := range []string{fmt.Sprintf("%s:%d:7: warning: %s/dir-%d not checked: ", path, 7+3*n, dead.Dir, n), fmt.Sprintf("%s:%d:12: warning: %s/env-%d not checked: ", path, 8+3*n, dead.Dir, n)} {
			if !slices.ContainsFunc(said.Log(), func(line string) bool {
				return strings.HasPrefix(line, want) && strings.Contains(line, "does not answer (mount "+dead.Dir+", fuse hungfs)") && strings.HasSuffix(line, "; the job cannot start here until the mount answers; repair the mount, or detach it: umount -l "+dead.Dir)
			}) {
				t.Errorf("no line %q in\n%s", want, strings.Join(said.Log(), "\n"))
			}
		}
	}
}
