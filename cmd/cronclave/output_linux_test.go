package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// runInto runs a command line with a file as its stdout, and returns its exit code and its stderr.
func runInto(t *testing.T, stdout *os.File, env []string, args ...string) (code int, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cronclave", args...)
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), env...)
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = stdout, &text
	return exitCode(cmd.Run()), text.String()
}

// TestLostOutputFailsTheCommand runs each command that prints with a full disk as its stdout.
func TestLostOutputFailsTheCommand(t *testing.T) {
	t.Parallel()
	server, _, j := startJournal(t)
	now, output := time.Now(), "printed\n"
	record := journal.Record{RunID: "run", Job: "a", Tick: now, Trigger: "schedule", Attempt: 1, Token: 1, Replica: "r", Outcome: "ok",
		Started: now, Finished: now, Output: &output}
	if err := j.Record(t.Context(), []journal.Record{record}); err != nil {
		t.Fatal(err)
	}
	if err := j.DescribeJobs(t.Context(), []journal.JobInfo{{Name: "a", Schedule: []string{"@daily"}, Timezone: "UTC", Seen: now, Enabled: true}}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	jobs := filepath.Join(dir, "jobs.toml")
	if err := os.WriteFile(jobs, []byte("[jobs.a]\nschedule = \"@daily\"\ncommand = [\"echo\", \"hello\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	env := []string{"CRONCLAVE_REDIS=" + server.URL(), "CRONCLAVE_CONFIG=" + jobs}
	if code, stderr := runInto(t, full, env, "fence", "stock", "9"); code != 0 || stderr != "" {
		t.Errorf("fence prints nothing: exit code %d, %s", code, stderr)
	}
	for line, want := range map[string]int{
		"version":                    exitFailed,
		"version --json":             exitFailed,
		"--version":                  exitFailed,
		"--help":                     exitFailed,
		"help run":                   exitFailed,
		"completion bash":            exitFailed,
		"check":                      exitFailed,
		"check --json":               exitFailed,
		"next -n 3":                  exitFailed,
		"status":                     exitFailed,
		"status --json":              exitFailed,
		"status --watch":             exitFailed,
		"history a":                  exitFailed,
		"history a --json":           exitFailed,
		"logs a":                     exitFailed,
		"why a 2020-01-01T00:00:00Z": exitFailed,
		"audit":                      exitFailed,
		"pause a":                    exitFailed,
		"resume a --json":            exitFailed,
		"fence stock 8":              exitStale,
		"fence stock 9 --json":       exitFailed,
		"exec a --no-lock":           exitFailed,
		"exec a --print":             exitFailed,
		"init " + dir + "/new":       exitFailed,
	} {
		code, stderr := runInto(t, full, env, strings.Fields(line)...)
		if code != want {
			t.Errorf("%s: exit code %d, want %d", line, code, want)
		}
		if want == exitFailed && !strings.HasSuffix(stderr, "cronclave: write output: write /dev/stdout: no space left on device\n") {
			t.Errorf("%s: stderr %q", line, stderr)
		}
	}
}

// TestReaderThatWentAwayEndsItQuietly has a command write into a pipe without a reader, as supervisors that ignore SIGPIPE start it.
func TestReaderThatWentAwayEndsItQuietly(t *testing.T) {
	t.Parallel()
	for _, start := range []string{`trap '' PIPE; cronclave help run`, `cronclave help run`} {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		reader.Close()
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", start+"; echo $? >&2")
		var stderr strings.Builder
		cmd.Stdout, cmd.Stderr = writer, &stderr
		err = cmd.Run()
		writer.Close()
		if got := stderr.String(); err != nil || got != "1\n" && got != "141\n" {
			t.Errorf("%s: %v, stderr %q, want only the exit code", start, err, got)
		}
	}
}
