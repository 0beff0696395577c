package integration

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// edit gives a cluster other jobs, and replicas, too, once they look at their configuration.
func (c *cluster) edit(t *testing.T, jobs string, replicas ...*replica) {
	t.Helper()
	_, env, _ := strings.Cut(c.config, "\n[defaults.env]")
	c.config = jobs + "\n[defaults.env]" + env
	for _, path := range append([]string{c.path}, paths(replicas)...) {
		if err := os.WriteFile(path+".new", []byte(c.config), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
}

func paths(replicas []*replica) (paths []string) {
	for _, r := range replicas {
		paths = append(paths, r.Config)
	}
	return paths
}

// reloads is how often a replica has reloaded.
func (r *replica) reloads() (n int) {
	for _, e := range r.LogEntries() {
		if message("configuration reloaded")(e) {
			n++
		}
	}
	return n
}

// A reload gives ticks to new jobs, none to removed ones, and lets runs go on. A faulty configuration changes
// nothing, and the log says so (P8).
// Promise: P8
func TestReload(t *testing.T) {
	slow(t)
	t.Parallel()
	const fresh = `
[jobs.new]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
`
	c := newCluster(t, `
[jobs.old]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
[jobs.long]
schedule = "*/2 * * * * *"
command = 'exec "$SCRIBE" -for 8s'
`)
	replicas := c.startAll(t, 2)
	c.awaitTick(t, soon, "old", 0)
	long := c.awaitTick(t, soon, "long", 0)

	c.edit(t, fresh, replicas...)
	for _, r := range replicas {
		e := r.WaitLog(t, soon, "reload", message("configuration reloaded"))
		if got := fmt.Sprintf("%v %v %v", e["added"], e["changed"], e["removed"]); got != "1 0 2" {
			t.Errorf("added, changed and removed: %s", got)
		}
	}
	reloaded := redisTime(t, c.Client).Unix()
	first := c.awaitTick(t, soon, "new", 0).Tick
	c.awaitTick(t, soon, "new", first+3)
	for _, l := range starts(c.lines(t, "")) {
		if l.Job != "new" && l.Tick > reloaded {
			t.Errorf("a job that is gone: %v", l)
		}
	}
	c.awaitRun(t, soon, "long", "the end of its run", func(r pastRun) bool { return r.RunID == long.RunID && r.verdict() == "ok" })

	c.edit(t, fresh+"schedul = 1\n[jobs.bad]\nschedule = \"61 * * * *\"\ncommand = [\"true\"]\n", replicas...)
	for _, r := range replicas {
		for _, fault := range []string{`unknown key "schedul"`, "61"} {
			r.WaitLog(t, soon, "refusal for "+fault, func(e logEntry) bool {
				said, _ := e["message"].(string)
				return message("configuration refused")(e) && strings.Contains(said, fault) && strings.Contains(e["at"].(string), "jobs.toml:")
			})
		}
	}
	eventually(t, soon, "a warning of each replica", func() bool {
		told := 0
		c.edit(t, fresh) // for commands only
		for _, w := range c.status(t).Warnings {
			if w.Code == "config_refused" && strings.Contains(w.Message, "(and 1 more)") {
				told++
			}
		}
		return told == len(replicas)
	})
	c.awaitTick(t, soon, "new", redisTime(t, c.Client).Unix()+1)

	c.edit(t, "[replica]\nmax_running = 7\n"+fresh, replicas...)
	for _, r := range replicas {
		e := r.WaitLog(t, soon, "word of what needs a restart", message("take effect after a restart"))
		if e["sections"] != "[replica]" {
			t.Errorf("%v", e)
		}
	}
	eventually(t, soon, "no warning any more", func() bool {
		for _, w := range c.status(t).Warnings {
			if w.Code == "config_refused" {
				return false
			}
		}
		return true
	})
	for _, r := range replicas {
		before := r.reloads()
		r.signal(t, syscall.SIGHUP)
		eventually(t, soon, "reload after SIGHUP", func() bool { return r.reloads() > before })
	}
	stopAll(t, replicas)
	checkOnce(t, starts(c.lines(t, "new")), 1)
	checkNotEarly(t, starts(c.lines(t, "new")))
}

// A reload works as Kubernetes mounts a configuration: the file is a link, through another link that is replaced.
func TestReloadOfMountedConfiguration(t *testing.T) {
	t.Parallel()
	c := newCluster(t, oneJob)
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
	mount("1", c.config)
	if err := os.Symlink("..data/jobs.toml", dir+"/jobs.toml"); err != nil {
		t.Fatal(err)
	}
	r := startObserved(t, "r1", "", []string{quickExit, "CRONCLAVE_REDIS=" + c.url}, program(t, cronclaveProgram),
		"run", "--config", dir+"/jobs.toml", "--replica", "r1", "--log-format", "json", "--namespace", c.Namespace)
	c.awaitTick(t, soon, "quick", 0)
	mount("2", strings.Replace(c.config, "[jobs.quick]", "[jobs.slow]", 1))
	r.WaitLog(t, soon, "reload", message("configuration reloaded"))
	c.awaitTick(t, soon, "slow", 0)
	stopAll(t, []*replica{r})
}
