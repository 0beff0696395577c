package integration

import (
	"fmt"
	"strings"
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
