package integration

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

// pollEvery is the interval of the checks of a condition: often enough for times in a test's message to mean
// something, seldom enough to leave a machine of two cores to the program under test.
const pollEvery = 20 * time.Millisecond

// poll checks the condition at once and then again and again until it holds or the context is done. It returns
// whether the condition held.
func poll(ctx context.Context, holds func() bool) bool {
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

// eventually fails the test unless the condition holds within the time. The text completes "no ...".
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if !poll(ctx, holds) {
		t.Fatalf("no %s within %s", what, within)
	}
}

// waitLines waits until the file has at least n complete lines and returns all that it has then. Files that jobs
// append to are the tests' truth.
func waitLines(t *testing.T, path string, n int, within time.Duration) []string {
	t.Helper()
	var lines []string
	eventually(t, within, "file "+path+" with enough lines", func() bool {
		lines = readLines(t, path)
		return len(lines) >= n
	})
	return lines
}

// readLines returns the complete lines of a file, none where there is no file yet. A last line without its newline
// is still being written.
func readLines(t *testing.T, path string) []string {
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

// pass waits until an instant.
func pass(t *testing.T, until time.Time) {
	t.Helper()
	select {
	case <-time.After(time.Until(until)):
	case <-t.Context().Done():
	}
}
