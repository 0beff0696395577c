//go:build unix

package notify

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/config"
)

// TestCommand checks what a command gets on stdin and in its environment.
func TestCommand(t *testing.T) {
	t.Setenv("CRONCLAVE_REDIS", "redis://:s3cr3t@h")
	t.Setenv("SLACK_URL", "s3cr3t")
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	for _, tt := range messages() {
		s := newSender(t, config.Notify{Kind: "command", Command: []string{"sh", "-c", `cat > "$1"; env > "$1.env"; pwd >> "$1.env"`, "sh", out}})
		if got := s.Send(t.Context(), tt.m); got != (Result{Answer: "exit code 0"}) {
			t.Fatalf("%s: %+v", tt.name, got)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Event
			Namespace string
			Events    []Event
			More      int
		}
		if err := json.Unmarshal(text, &got); err != nil || got.Namespace != tt.m.Namespace || got.More != tt.m.More {
			t.Errorf("%s: %v %.200s", tt.name, err, text)
		}
		if first := tt.m.Events[0]; len(tt.m.Events) == 1 && (got.ID != first.ID || got.Name != first.Name) || len(tt.m.Events) > 1 && len(got.Events) != len(tt.m.Events) {
			t.Errorf("%s: %.200s", tt.name, text)
		}
	}
	if env, err := os.ReadFile(out + ".env"); err != nil || strings.Contains(string(env), "s3cr3t") || !strings.Contains(string(env), "PATH=") {
		t.Errorf("%v %s", err, env)
	}
}

// TestCommandVerdicts checks the verdict of each end.
func TestCommandVerdicts(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]Result{
		"exit 0":                               {Answer: "exit code 0"},
		"exec <&-; exit 0":                     {Answer: "exit code 0"},
		"echo s3cr3t; exit 1":                  {Verdict: Later, Answer: "exit code 1"},
		"exit 65":                              {Verdict: Never, Answer: "exit code 65"},
		"kill -KILL $$":                        {Verdict: Unknown, Answer: "the command was killed by a signal"},
		"sleep 1000 & exec sh -c 'sleep 1000'": {Verdict: Unknown, Answer: "the command was killed, because it did not end in time"},
	} {
		timeout := time.Minute
		if strings.Contains(script, "sleep") {
			timeout = 300 * time.Millisecond
		}
		if got := newSender(t, config.Notify{Kind: "command", Command: []string{"sh", "-c", script}, Timeout: timeout}).Send(t.Context(), messages()[0].m); got != want {
			t.Errorf("%s: %+v, want %+v", script, got, want)
		}
	}
	for _, program := range []string{"/no/such/s3cr3t", "no-such-s3cr3t", "/"} {
		if got := newSender(t, config.Notify{Kind: "command", Command: []string{program}}).Send(t.Context(), messages()[0].m); got.Verdict != Never || !got.Gone || strings.Contains(got.Answer, "s3cr3t") {
			t.Errorf("%s: %+v", program, got)
		}
	}
}

// TestCommandLeavesNothing checks that the processes of the group are dead after a command that ended, and after one that was killed.
func TestCommandLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"exit 0", "wait"} {
		pid := filepath.Join(t.TempDir(), "pid")
		target := config.Notify{Kind: "command", Command: []string{"sh", "-c", "sleep 1000 & echo $! > " + pid + "; " + end}, Timeout: 500 * time.Millisecond}
		newSender(t, target).Send(t.Context(), messages()[0].m)
		text, err := os.ReadFile(pid)
		if err != nil {
			t.Fatal(err)
		}
		child, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		for !isDead(child) {
			if !backoff.Sleep(t.Context(), 10*time.Millisecond) {
				t.Fatalf("%s: process %d lives", end, child)
			}
		}
	}
}

// isDead reports whether a process is gone or a zombie. Where this process is the subreaper of nobody, its parent reaps the zombie.
func isDead(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}
