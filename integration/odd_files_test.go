package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// oddFile is a thing in the place of a configuration file, and the message about it.
type oddFile struct {
	name string
	make func(path string) error
	says string
}

func oddFiles() []oddFile {
	files := []oddFile{
		{"pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) }, "not a regular file"},
		{"link-to-pipe", func(path string) error {
			return errors.Join(syscall.Mkfifo(path+".fifo", 0o600), os.Symlink(path+".fifo", path))
		}, "not a regular file"},
		{"link-to-zero", func(path string) error { return os.Symlink("/dev/zero", path) }, "not a regular file"},
		{"long", func(path string) error { return os.WriteFile(path, make([]byte, 5<<20), 0o600) }, "longer than 4 MiB"},
		{"deep", func(path string) error {
			return os.WriteFile(path, []byte("a = "+strings.Repeat("[", 40_000)+strings.Repeat("]", 40_000)), 0o600)
		}, "nested more than 32 deep"},
		{"wide", func(path string) error {
			return os.WriteFile(path, []byte("a = ["+strings.Repeat("[],", 1_000_000)+"]"), 0o600)
		}, "more than 250000 values and headers"},
	}
	if os.Geteuid() == 0 {
		files = append(files, oddFile{"open", func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666))
		}, "chmod go-w"}, oddFile{"theirs", func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 4001, -1))
		}, "chown root "})
	}
	return files
}

// A replica refuses a reload with an odd file and keeps its configuration. The include folder gets an entry that is
// no file, is too large or belongs to another user; every tick runs once. No replica starts with such a file.
func TestOddFilesStopNoReplica(t *testing.T) {
	slow(t)
	t.Parallel()
	folder := t.TempDir()
	c := newCluster(t, fmt.Sprintf(`
include = [%q]
[jobs.quick]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
parallel = 20
per_tick = 1
per_replica = 20
start_deadline = "1m"
`, folder+"/*.toml"))
	replicas := c.startAll(t, 2)
	first := c.awaitTick(t, soon, "quick", 0).Tick
	for i, f := range oddFiles() {
		path := filepath.Join(folder, f.name+".toml")
		must(t, f.make(path))
		for _, r := range replicas {
			if i%2 == 0 {
				r.signal(t, syscall.SIGHUP)
			}
			r.WaitLog(t, soon, "refusal of "+f.name, func(e logEntry) bool {
				said := fmt.Sprint(e["message"], e["at"])
				return message("configuration refused")(e) && strings.Contains(said, f.name) && strings.Contains(said, f.says)
			})
		}
		c.awaitTick(t, soon, "quick", redisTime(t, c.Client).Unix()+1)
		if f.name == "pipe" || f.name == "deep" {
			c.command(t, "check").want(t, 2, f.says)
			c.command(t, "run", "--replica", "late").want(t, 2, f.says)
		}
		must(t, os.Remove(path))
	}
	last := c.awaitTick(t, soon, "quick", redisTime(t, c.Client).Unix()+1).Tick
	for _, r := range replicas {
		if peak := peakMemory(r.PID); peak > 600<<20 {
			t.Errorf("%s has taken %d MiB", r.Name, peak>>20)
		}
	}
	stopAll(t, replicas)
	runs := starts(c.lines(t, "quick"))
	checkOnce(t, runs, 1)
	ran := map[int64]bool{}
	for _, l := range runs {
		ran[l.Tick] = true
	}
	for tick := first; tick <= last; tick++ {
		if !ran[tick] {
			t.Errorf("the tick %d of %d to %d did not run", tick, first, last)
		}
	}
}

// peakMemory is the most that a process has had, in bytes; 0 where the system does not say.
func peakMemory(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, _ := strconv.Atoi(number)
	return kib << 10
}

// An env_file that becomes a pipe hangs no run: each fails and says why, and the other job goes on.
func TestEnvFileBecomesAPipe(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "job.env")
	write(t, file, "A=1\n")
	c := newCluster(t, oneJob+fmt.Sprintf(`
[jobs.filed]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
env_file = %q
`, file))
	replicas := c.startAll(t, 1)
	c.awaitTick(t, soon, "filed", 0)
	must(t, syscall.Mkfifo(file+".new", 0o600))
	must(t, os.Rename(file+".new", file))
	for range 2 {
		past := c.awaitRun(t, soon, "filed", "a failed run", func(r pastRun) bool { return r.Outcome == "failed" })
		if !strings.Contains(past.Reason, "not a regular file") {
			t.Errorf("%+v", past)
		}
	}
	c.awaitTick(t, soon, "quick", redisTime(t, c.Client).Unix()+1)
	write(t, file+".new", "A=1\n")
	must(t, os.Rename(file+".new", file))
	c.awaitTick(t, soon, "filed", redisTime(t, c.Client).Unix()+1)
	stopAll(t, replicas)
}

// A job of an unprivileged user gets no file that this user may not read, also not by a link.
func TestJobGetsNoFileOfRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		must(t, os.Chmod(d, 0o755))
	}
	write(t, dir+"/secret", "S3CR3T=1\n")
	must(t, os.Symlink("secret", dir+"/job.env"))
	c := newCluster(t, fmt.Sprintf(`
[jobs.theirs]
schedule = "* * * * * *"
command = 'env'
user = "nobody"
env_file = %q
`, dir+"/job.env"))
	replicas := c.startAll(t, 1)
	past := c.awaitRun(t, soon, "theirs", "end", func(r pastRun) bool { return r.Outcome != "running" })
	want := "only root may change the user"
	if os.Geteuid() == 0 {
		want = "as the user nobody: read " + dir + "/job.env: permission denied"
	}
	if past.Outcome != "failed" || !strings.Contains(past.Reason, want) || strings.Contains(value(past.Output), "S3CR3T") {
		t.Errorf("%+v, want %q", past, want)
	}
	stopAll(t, replicas)
}
