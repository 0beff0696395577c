package architecture

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a small repository with our script for repeated runs, and a Makefile whose test appends a line to a file and may fail.
type repository struct {
	*testing.T
	dir, ran string // ran is the file to which each run appends a line
}

func newRepository(t *testing.T, recipe string) *repository {
	t.Helper()
	r := &repository{T: t, dir: t.TempDir(), ran: filepath.Join(t.TempDir(), "ran")}
	script, err := os.ReadFile(root + "/.ci/repeat")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{".ci/repeat": string(script), ".gitignore": "/bin/\n", "Makefile": "test:\n" + recipe} {
		path := filepath.Join(r.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "a"}} {
		if out, err := exec.Command("git", append([]string{"-C", r.dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return r
}

// repeat runs the script and returns its output.
func (r *repository) repeat(code int, runs string, env ...string) string {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), r.dir+"/.ci/repeat", runs)
	cmd.Env = append(append(os.Environ(), "RAN="+r.ran, "TMPDIR="+r.TempDir()), env...)
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		r.Fatalf("repeat %s: exit code %d, %v, want %d\n%s", runs, got, err, code, out)
	}
	return string(out)
}

// lines returns the lines that the runs left.
func (r *repository) lines() []string {
	text, err := os.ReadFile(r.ran)
	if err != nil {
		r.Fatal(err)
	}
	return strings.Fields(string(text))
}

// A series of runs goes on after the last run that has a log, fails if any run failed, and gives each run a clone and a build cache of its own.
func TestRepeatedRunsAreResumed(t *testing.T) {
	t.Parallel()
	r := newRepository(t, "\techo $(CURDIR):$$GOCACHE >>$$RAN\n\ttest \"$$(grep -c . $$RAN)\" != 2 || { echo '--- FAIL: TestSecond'; exit 1; }\n")
	if out := r.repeat(1, "3"); !strings.Contains(out, "2 of 3 passed") || !strings.Contains(out, "--- FAIL: TestSecond") {
		t.Errorf("summary:\n%s", out)
	}
	if n := len(r.lines()); n != 3 {
		t.Fatalf("%d runs, want 3", n)
	}
	if out := r.repeat(1, "4"); !strings.Contains(out, "3 of 4 passed") {
		t.Errorf("summary of the resumed series:\n%s", out)
	}
	ran := r.lines()
	if len(ran) != 4 {
		t.Fatalf("%d runs after one more was asked for, want 4", len(ran))
	}
	for _, line := range ran {
		clone, cache, _ := strings.Cut(line, ":")
		if clone == r.dir || cache == os.Getenv("GOCACHE") || filepath.Dir(clone) != filepath.Dir(cache) {
			t.Errorf("a run in %s with the build cache %s", clone, cache)
		}
		if _, err := os.Stat(filepath.Dir(clone)); err == nil {
			t.Errorf("%s is left behind", filepath.Dir(clone))
		}
	}
	if out := r.repeat(0, "1", "CACHE="+t.TempDir()); !strings.Contains(out, "1 of 1 passed") { // another series
		t.Errorf("summary of the series with a warm cache:\n%s", out)
	}
}
