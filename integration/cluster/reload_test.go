package cluster

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// A reload gives ticks to new jobs, none to removed ones, and lets runs go on. A faulty configuration changes
// nothing, and the log says so (P8).
// Promise: P8
func TestReload(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const fresh = `
[jobs.new]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
`
	c := harness.NewCluster(t, `
[jobs.old]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
[jobs.long]
schedule = "*/2 * * * * *"
command = 'exec "$SCRIBE" -for 8s'
`)
	replicas := c.StartAll(t, 2)
	c.AwaitTick(t, harness.Soon, "old", 0)
	long := c.AwaitTick(t, harness.Soon, "long", 0)

	c.Edit(t, fresh, replicas...)
	for _, r := range replicas {
		e := r.WaitLog(t, harness.Soon, "reload", harness.MessageHas("configuration reloaded"))
		if got := fmt.Sprintf("%v %v %v", e["added"], e["changed"], e["removed"]); got != "1 0 2" {
			t.Errorf("added, changed and removed: %s", got)
		}
	}
	reloaded := harness.RedisTime(t, c.Client).Unix()
	first := c.AwaitTick(t, harness.Soon, "new", 0).Tick
	c.AwaitTick(t, harness.Soon, "new", first+3)
	for _, l := range harness.Starts(c.Lines(t, "")) {
		if l.Job != "new" && l.Tick > reloaded {
			t.Errorf("a job that is gone: %v", l)
		}
	}
	c.AwaitRun(t, harness.Soon, "long", "the end of its run", func(r harness.PastRun) bool { return r.RunID == long.RunID && r.Verdict() == "ok" })

	c.Edit(t, fresh+"schedul = 1\n[jobs.bad]\nschedule = \"61 * * * *\"\ncommand = [\"true\"]\n", replicas...)
	for _, r := range replicas {
		for _, fault := range []string{`unknown key "schedul"`, "61"} {
			r.WaitLog(t, harness.Soon, "refusal for "+fault, func(e harness.LogEntry) bool {
				said, _ := e["message"].(string)
				return harness.MessageHas("configuration refused")(e) && strings.Contains(said, fault) && strings.Contains(e["at"].(string), "jobs.toml:")
			})
		}
	}
	harness.Eventually(t, harness.Soon, "a warning of each replica", func() bool {
		told := 0
		c.Edit(t, fresh) // for commands only
		for _, w := range c.Status(t).Warnings {
			if w.Code == "config_refused" && strings.Contains(w.Message, "(and 1 more)") {
				told++
			}
		}
		return told == len(replicas)
	})
	c.AwaitTick(t, harness.Soon, "new", harness.RedisTime(t, c.Client).Unix()+1)

	c.Edit(t, "[replica]\nmax_running = 7\n"+fresh, replicas...)
	for _, r := range replicas {
		e := r.WaitLog(t, harness.Soon, "word of what needs a restart", harness.MessageHas("take effect after a restart"))
		if e["sections"] != "[replica]" {
			t.Errorf("%v", e)
		}
	}
	harness.Eventually(t, harness.Soon, "no warning any more", func() bool {
		for _, w := range c.Status(t).Warnings {
			if w.Code == "config_refused" {
				return false
			}
		}
		return true
	})
	for _, r := range replicas {
		before := r.Reloads()
		r.Signal(t, syscall.SIGHUP)
		harness.Eventually(t, harness.Soon, "reload after SIGHUP", func() bool { return r.Reloads() > before })
	}
	harness.StopAll(t, replicas)
	harness.CheckOnce(t, harness.Starts(c.Lines(t, "new")), 1)
	harness.CheckNotEarly(t, harness.Starts(c.Lines(t, "new")))
}

// A reload works as Kubernetes mounts a configuration: the file is a link, through another link that is replaced.
func TestReloadOfMountedConfiguration(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t, harness.OneJob)
	dir := t.TempDir()
	mount := func(version, config string) {
		t.Helper()
		if err := os.Mkdir(dir+"/.."+version, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/.."+version+"/jobs.toml", []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(".."+version, dir+"/..next"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dir+"/..next", dir+"/..data"); err != nil {
			t.Fatal(err)
		}
	}
	mount("1", c.Config)
	if err := os.Symlink("..data/jobs.toml", dir+"/jobs.toml"); err != nil {
		t.Fatal(err)
	}
	r := harness.StartObserved(t, "r1", "", []string{harness.QuickExit, "CRONCLAVE_REDIS=" + c.URL}, harness.Program(t, harness.CronclaveProgram),
		"run", "--config", dir+"/jobs.toml", "--replica", "r1", "--log-format", "json", "--namespace", c.Namespace)
	c.AwaitTick(t, harness.Soon, "quick", 0)
	mount("2", strings.Replace(c.Config, "[jobs.quick]", "[jobs.slow]", 1))
	r.WaitLog(t, harness.Soon, "reload", harness.MessageHas("configuration reloaded"))
	c.AwaitTick(t, harness.Soon, "slow", 0)
	harness.StopAll(t, []*harness.Replica{r})
}
