package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/hungfs"
)

// A program on a mount that does not answer costs its own job alone: all ticks of four other jobs run, each second, with one replica and with two. The log,
// status and the history name the job, the program and the mount.
func TestProgramOnADeadMount(t *testing.T) {
	slow(t)
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
			c := newCluster(t, config)
			replicas := c.startAll(t, n)
			t.Cleanup(dead.Answer)
			c.awaitRun(t, soon, "hung", "a run that is ok", func(r pastRun) bool { return r.Outcome == "ok" })
			dead.HangOpen()
			from := redisTime(t, c.Client)
			names := func(text string) bool {
				return strings.Contains(text, "executing "+dead.Dir+"/program (mount "+dead.Dir+", fuse hungfs)")
			}
			replicas[0].WaitLog(t, time.Minute, "word of the start that hangs", func(e logEntry) bool {
				text, _ := e["error"].(string)
				return strings.HasPrefix(e.Message(), "cannot start the job") && e["job"] == "hung" && names(text)
			})
			eventually(t, time.Minute, "a warning that names job, program and mount", func() bool {
				all := c.warnings(t, "cannot_start")
				return len(all) > 0 && strings.Contains(all[0], "cannot start job hung") && names(all[0])
			})
			c.awaitRun(t, time.Minute, "hung", "a tick that was missed", func(r pastRun) bool {
				return r.Outcome == "missed" && r.Reason == "cannot_start" && names(r.Detail)
			})
			awaitTime(t, c.Client, from.Add(20*time.Second))
			dead.Answer()
			answered := redisTime(t, c.Client)
			c.awaitRun(t, 2*time.Minute, "hung", "a run once the mount answers", func(r pastRun) bool { return r.Outcome == "ok" && r.Started.After(answered) })
			stopAll(t, replicas)
			for _, job := range others {
				c.checkEachTickOnce(t, job)
			}
		})
	}
}

// TestConfigurationOnADeadMount checks that a replica keeps running its jobs if the mount of its configuration does not answer, and logs that once. A reload on
// SIGHUP is refused, and check and a second replica exit with 2.
func TestConfigurationOnADeadMount(t *testing.T) {
	slow(t)
	t.Parallel()
	c := newCluster(t, "[jobs.a]\nschedule = \"* * * * * *\"\nstart_deadline = \"30s\"\ncommand = '\"$SCRIBE\" -for 10ms'\n")
	dead := hungfs.New(t, map[string]string{"jobs.toml": c.config})
	r := startObserved(t, "r1", "", []string{quickExit, "CRONCLAVE_REDIS=" + c.url}, program(t, cronclaveProgram),
		"run", "--config", dead.Dir+"/jobs.toml", "--replica", "r1", "--namespace", c.Namespace, "--log-format", "json")
	t.Cleanup(dead.Answer)
	c.awaitRun(t, soon, "a", "a run that is ok", func(r pastRun) bool { return r.Outcome == "ok" })
	before := len(r.LogEntries())
	dead.Hang()
	silent := func() []logEntry { // on a busy machine the mount may have taken too long before
		return slices.DeleteFunc(r.LogEntries()[before:], func(e logEntry) bool {
			return e.Message() != "configuration file cannot be read: its mount does not answer; the last version stays in use"
		})
	}
	eventually(t, time.Minute, "word of the file", func() bool { return len(silent()) > 0 })
	since := redisTime(t, c.Client)
	c.awaitRun(t, time.Minute, "a", "runs meanwhile", func(r pastRun) bool { return r.Outcome == "ok" && r.Tick.After(since.Add(5*time.Second)) })
	lines := silent()
	if text, _ := lines[0]["error"].(string); len(lines) != 1 || !strings.Contains(text, "(mount "+dead.Dir+", fuse hungfs)") || lines[0]["level"] != "warn" {
		t.Errorf("%d lines, %v", len(lines), lines[0])
	}
	r.signal(t, syscall.SIGHUP)
	r.WaitLog(t, time.Minute, "refused reload", func(e logEntry) bool {
		text, _ := e["message"].(string)
		return e.Message() == "configuration refused; the last good one stays" && strings.Contains(text, "cannot be read: its file system does not answer (mount "+dead.Dir)
	})
	var others []*replica
	for _, args := range [][]string{{"check", dead.Dir + "/jobs.toml"}, {"run", "--config", dead.Dir + "/jobs.toml", "--replica", "r2", "--namespace", c.Namespace}} {
		p := startObserved(t, args[0], "", []string{quickExit, "CRONCLAVE_REDIS=" + c.url}, program(t, cronclaveProgram), args...)
		t.Cleanup(dead.Answer)
		eventually(t, time.Minute, "fault of "+args[0], func() bool {
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
	stopAll(t, []*replica{r})
	c.checkEachTickOnce(t, "a")
}

// TestCheckOnADeadMount: check asks a dead mount once for all jobs, and has a warning at the place of each.
func TestCheckOnADeadMount(t *testing.T) {
	slow(t)
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
	said := startObserved(t, "check", "", []string{quickExit}, program(t, cronclaveProgram), "check", path)
	t.Cleanup(dead.Answer)
	eventually(t, time.Minute, "end of the check", func() bool {
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
