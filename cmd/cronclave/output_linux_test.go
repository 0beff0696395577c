package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
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
	server, _, j := redistest.StartJournal(t)
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

// evil clears the screen, sets the terminal's title, hides the following text, and turns the direction of writing.
const evil = "\x1b[2J\x1b]0;gone\a\u009b8m\x9b8m\u202ename\rover"

// TestNothingCommandsATerminal has Redis, a configuration and a job say what a terminal would obey. On a terminal it is quoted, in a pipe it is not.
func TestNothingCommandsATerminal(t *testing.T) {
	t.Parallel()
	s, _, j := redistest.StartJournal(t)
	now, output, slot := time.Now(), evil+"\n", 0
	entry := journal.Replica{ID: "r-1", Name: evil + "\nforged", Version: evil, Started: now, Seen: now, ConfigDigest: "d", Refused: evil}
	if _, err := j.Register(t.Context(), entry, time.Hour); err != nil {
		t.Fatal(err)
	}
	record := journal.Record{RunID: "run", Job: "a", Tick: now, Trigger: "schedule", Slot: &slot, Attempt: 1, Token: 1, Replica: evil, Outcome: "failed",
		Reason: evil, Started: now, Finished: now, Output: &output}
	if err := j.Record(t.Context(), []journal.Record{record}); err != nil {
		t.Fatal(err)
	}
	if err := j.DescribeJobs(t.Context(), []journal.JobInfo{{Name: "a", Schedule: []string{evil}, Timezone: "UTC", Seen: now, Enabled: true}}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	job, faulty := filepath.Join(dir, "job.toml"), filepath.Join(dir, "faulty.toml")
	for file, text := range map[string]string{
		job:    "[jobs.a]\nschedule = \"@daily\"\ncommand = [\"printf\", '\\033[2J\\233\\302\\233gone\\n']\n",
		faulty: "[jobs.a]\nschedule = \"@daily\"\ncommand = \"true\"\nzone = \"\\u001b[2J\\u202e\"\n\"\\u001b[2J\" = 1\ntags = [\"\\u001b[2J\"]\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"CRONCLAVE_REDIS=" + s.URL()}
	for _, tc := range []struct {
		args []string
		code int
	}{
		{[]string{"status"}, 0}, {[]string{"status", "--json"}, 0}, {[]string{"history", "a", "--output"}, 0}, {[]string{"history", "--json", "--output"}, 0},
		{[]string{"logs", "a"}, 0}, {[]string{"exec", "a", "--no-lock", "--config", job}, 0}, {[]string{"check", faulty}, 2},
		{[]string{"exec", evil, "--no-lock", "--config", job}, 2}, {[]string{"exec", evil}, 2},
	} {
		screen := openScreen(t, env, append([]string{"cronclave"}, tc.args...)...)
		screen.ends(t, tc.code)
		<-screen.end
		shown := screen.text.String()
		for _, part := range []string{"\x1b[2J", "\x1b]", "\a", "\u009b", "\x9b8m", "\u202e", "\rover", "\nforged"} {
			if strings.Contains(shown, part) {
				t.Errorf("%q: the terminal gets %q:\n%q", tc.args, part, shown)
			}
		}
	}
	var out, said bytes.Buffer
	runCommandLine(t.Context(), []string{"history", "a", "--output", "--redis", s.URL()}, streams{out: &out, err: &said})
	if !strings.Contains(out.String(), "    "+evil) {
		t.Errorf("in a pipe: %q, %q", &out, &said)
	}
}

// TestZoneOnATerminal has history print times in the machine's zone, and in another one.
func TestZoneOnATerminal(t *testing.T) {
	t.Parallel()
	s, _, j := redistest.StartJournal(t)
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	record := journal.Record{RunID: "run", Job: "a", Tick: noon, Trigger: "schedule", Attempt: 1, Token: 1, Replica: "r", Outcome: "ok", Started: noon, Finished: noon}
	if err := j.Record(t.Context(), []journal.Record{record}); err != nil {
		t.Fatal(err)
	}
	env := []string{"CRONCLAVE_REDIS=" + s.URL(), "TZ=Asia/Tokyo"}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "2026-01-01T21:00:00+09:00"}, {[]string{"--zone", "UTC"}, "2026-01-01T12:00:00Z"},
	} {
		screen := openScreen(t, env, append([]string{"cronclave", "history", "a"}, tc.args...)...)
		screen.shows(t, tc.want)
		screen.ends(t, 0)
	}
}

// TestProgramsStartWithDefaultSignals starts exec and lock with signals ignored and blocked, as a supervisor, nohup or a script may. The command has none of
// that, and none of the variables with which a service manager addresses this process.
func TestProgramsStartWithDefaultSignals(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	const show = `grep -E '^Sig(Blk|Ign):' /proc/self/status; env | grep -E '^(NOTIFY|WATCHDOG|LISTEN)_' ; echo done`
	for name, line := range map[string][]string{
		"exec": execLine(t, "", "inherit_env = true\ncommand = [\"sh\", \"-c\", '''"+show+"''']\n"),
		"lock": {"cronclave", "lock", "l", "--redis", server.URL(), "--", "sh", "-c", show},
	} {
		t.Run(name, func(t *testing.T) {
			env := []string{"NOTIFY_SOCKET=/run/systemd/notify", "WATCHDOG_USEC=1000000", "WATCHDOG_PID=1", "LISTEN_FDS=1", "LISTEN_PID=1", "LISTEN_FDNAMES=x",
				"LISTEN_PIDFDID=7", "LISTEN_ADDR=:80"}
			p := startProcess(t, env, append([]string{"env", "--ignore-signal=HUP,INT,TSTP,TTIN,TTOU", "--block-signal=USR1,TERM"}, line...)...)
			said := strings.Replace(p.end(t, 0), "SigIgn:\t0000000080000000", "SigIgn:\t0000000000000000", 1) // 32 is a signal of the C library, which is linked with the race detector
			want := "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nLISTEN_ADDR=:80\ndone\n"
			if said != want {
				t.Errorf("the command said\n%s\nwant\n%s", said, want)
			}
			if p.stderr.Len() > 0 && !strings.Contains(p.stderr.String(), "[DEBUG]") {
				t.Errorf("stderr: %s", &p.stderr)
			}
		})
	}
}
