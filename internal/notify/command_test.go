//go:build unix

package notify

import (
	"context"
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
		}
		if err := json.Unmarshal(text, &got); err != nil || got.Namespace != tt.m.Namespace {
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
		"exit 0":              {Answer: "exit code 0"},
		"exec <&-; exit 0":    {Answer: "exit code 0"},
		"echo s3cr3t; exit 1": {Verdict: Later, Answer: "exit code 1"},
		"exit 65":             {Verdict: Never, Answer: "exit code 65"},
		"kill -KILL $$":       {Verdict: Unknown, Answer: "the command was killed by a signal"},
	} {
		if got := newSender(t, config.Notify{Kind: "command", Command: []string{"sh", "-c", script}}).Send(t.Context(), messages()[0].m); got != want {
			t.Errorf("%s: %+v, want %+v", script, got, want)
		}
	}
	for _, program := range []string{"/no/such/s3cr3t", "no-such-s3cr3t"} {
		if got := newSender(t, config.Notify{Kind: "command", Command: []string{program}}).Send(t.Context(), messages()[0].m); got.Verdict != Never || !got.Gone || strings.Contains(got.Answer, "s3cr3t") {
			t.Errorf("%s: %+v", program, got)
		}
	}
}

// TestCommandLeavesNothing checks that the processes of the group are dead after a command that ended, and after one that was killed.
func TestCommandLeavesNothing(t *testing.T) {
	t.Parallel()
	for end, want := range map[string]Verdict{"exit 0": Done, "wait": Unknown} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		path := filepath.Join(t.TempDir(), "pid")
		script := "sleep 1000 & echo $! > " + path + ".new; mv " + path + ".new " + path + "; " + end
		result := make(chan Result, 1)
		go func() {
			result <- newSender(t, config.Notify{Kind: "command", Command: []string{"sh", "-c", script}}).Send(ctx, messages()[0].m)
		}()
		var text []byte
		for text == nil {
			text, _ = os.ReadFile(path)
			backoff.Sleep(ctx, 10*time.Millisecond)
		}
		if end == "wait" {
			cancel()
		}
		if got := <-result; got.Verdict != want {
			t.Errorf("%s: %+v", end, got)
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

// isDead reports whether a process is gone or a zombie.
func isDead(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}
