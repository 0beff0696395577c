package harness

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"
)

// Patience is the time-out of a client that demands an answer, also of a machine that is busy with other things.
const Patience = 10 * time.Second

// Secret is what no job may see and no log may show.
const Secret = "hunter2-of-the-daemon"

func WriteFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Slack is what a slow, busy machine may need for something that takes milliseconds.
const Slack = 5 * time.Second

// Forever is a command that ends by a signal only.
var Forever = []string{"-for", "5m", "-beat", "20ms"}

func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func Must1[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		Must(t, err)
		return v
	}
}

// pollEvery is the interval of the checks of a condition: often enough for times in a test's message to mean
// something, seldom enough to leave a machine of two cores to the program under test.
const pollEvery = 20 * time.Millisecond

// Soon is the patience of most waits: much more than a slow and busy machine with two cores needs.
const Soon = time.Minute

// Poll checks the condition at once and then again and again until it holds or the context is done. It returns
// whether the condition held.
func Poll(ctx context.Context, holds func() bool) bool {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if holds() {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// Eventually fails the test unless the condition holds within the time. The text completes "no ...".
func Eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if !Poll(ctx, holds) {
		t.Fatalf("no %s within %s", what, within)
	}
}

// WaitLines waits until the file has at least n complete lines and returns all that it has then. Files that jobs
// append to are the tests' truth.
func WaitLines(t *testing.T, path string, n int, within time.Duration) []string {
	t.Helper()
	var lines []string
	Eventually(t, within, "file "+path+" with enough lines", func() bool {
		lines = ReadLines(t, path)
		return len(lines) >= n
	})
	return lines
}

// ReadLines returns the complete lines of a file, none where there is no file yet. A last line without its newline
// is still being written.
func ReadLines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	end := bytes.LastIndexByte(text, '\n')
	if end < 0 {
		return nil
	}
	return strings.Split(string(text[:end]), "\n")
}

// Pass waits until an instant.
func Pass(t *testing.T, until time.Time) {
	t.Helper()
	select {
	case <-time.After(time.Until(until)):
	case <-t.Context().Done():
	}
}
