package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
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
	testtier.Slow(t)
	t.Parallel()
	folder := t.TempDir()
	c := harness.NewCluster(t, fmt.Sprintf(`
include = [%q]
[jobs.quick]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
parallel = 20
per_tick = 1
per_replica = 20
start_deadline = "1m"
`, folder+"/*.toml"))
	replicas := c.StartAll(t, 2)
	first := c.AwaitTick(t, harness.Soon, "quick", 0).Tick
	for i, f := range oddFiles() {
		path := filepath.Join(folder, f.name+".toml")
		harness.Must(t, f.make(path))
		for _, r := range replicas {
			if i%2 == 0 {
				r.Signal(t, syscall.SIGHUP)
			}
			r.WaitLog(t, harness.Soon, "refusal of "+f.name, func(e harness.LogEntry) bool {
				said := fmt.Sprint(e["message"], e["at"])
				return harness.MessageHas("configuration refused")(e) && strings.Contains(said, f.name) && strings.Contains(said, f.says)
			})
		}
		c.AwaitTick(t, harness.Soon, "quick", harness.RedisTime(t, c.Client).Unix()+1)
		if f.name == "pipe" || f.name == "deep" {
			c.Command(t, "check").Want(t, 2, f.says)
			c.Command(t, "run", "--replica", "late").Want(t, 2, f.says)
		}
		harness.Must(t, os.Remove(path))
	}
	last := c.AwaitTick(t, harness.Soon, "quick", harness.RedisTime(t, c.Client).Unix()+1).Tick
	for _, r := range replicas {
		if peak := peakMemory(r.PID); peak > 600<<20 {
			t.Errorf("%s has taken %d MiB", r.Name, peak>>20)
		}
	}
	harness.StopAll(t, replicas)
	runs := harness.Starts(c.Lines(t, "quick"))
	harness.CheckOnce(t, runs, 1)
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
	harness.WriteFile(t, file, "A=1\n")
	c := harness.NewCluster(t, harness.OneJob+fmt.Sprintf(`
[jobs.filed]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
env_file = %q
`, file))
	replicas := c.StartAll(t, 1)
	c.AwaitTick(t, harness.Soon, "filed", 0)
	harness.Must(t, syscall.Mkfifo(file+".new", 0o600))
	harness.Must(t, os.Rename(file+".new", file))
	for range 2 {
		past := c.AwaitRun(t, harness.Soon, "filed", "a failed run", func(r harness.PastRun) bool { return r.Outcome == "failed" })
		if !strings.Contains(past.Reason, "not a regular file") {
			t.Errorf("%+v", past)
		}
	}
	c.AwaitTick(t, harness.Soon, "quick", harness.RedisTime(t, c.Client).Unix()+1)
	harness.WriteFile(t, file+".new", "A=1\n")
	harness.Must(t, os.Rename(file+".new", file))
	c.AwaitTick(t, harness.Soon, "filed", harness.RedisTime(t, c.Client).Unix()+1)
	harness.StopAll(t, replicas)
}

// A job of an unprivileged user gets no file that this user may not read, also not by a link.
func TestJobGetsNoFileOfRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		harness.Must(t, os.Chmod(d, 0o755))
	}
	harness.WriteFile(t, dir+"/secret", "S3CR3T=1\n")
	harness.Must(t, os.Symlink("secret", dir+"/job.env"))
	c := harness.NewCluster(t, fmt.Sprintf(`
[jobs.theirs]
schedule = "* * * * * *"
command = 'env'
user = "nobody"
env_file = %q
`, dir+"/job.env"))
	replicas := c.StartAll(t, 1)
	past := c.AwaitRun(t, harness.Soon, "theirs", "end", func(r harness.PastRun) bool { return r.Outcome != "running" })
	want := "only root may change the user"
	if os.Geteuid() == 0 {
		want = "as the user nobody: read " + dir + "/job.env: permission denied"
	}
	if past.Outcome != "failed" || !strings.Contains(past.Reason, want) || strings.Contains(value(past.Output), "S3CR3T") {
		t.Errorf("%+v, want %q", past, want)
	}
	harness.StopAll(t, replicas)
}
