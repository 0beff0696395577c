package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// evil clears the screen, sets the terminal's title, hides the following text, and turns the direction of writing.
const evil = "\x1b[2J\x1b]0;gone\a\u009b8m\x9b8m\u202ename\rover"

// TestNothingCommandsATerminal has Redis, a configuration and a job say what a terminal would obey. On a terminal it is quoted, in a pipe it is not.
func TestNothingCommandsATerminal(t *testing.T) {
	t.Parallel()
	s, _, j := startJournal(t)
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
	s, _, j := startJournal(t)
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
