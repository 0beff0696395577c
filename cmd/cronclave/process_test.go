package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// exitCode is how a process ended: -1 by a signal, -2 if it did not even start.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		return -2
	}
	return 0
}

// program is cronclave as a user starts it.
type program struct {
	*exec.Cmd
	out    *bufio.Reader
	stdout io.ReadCloser // below out
	stderr bytes.Buffer
	tmp    string // its folder for temporary files, which marks it, its children and theirs
}

// longestProcess bounds what a test waits for.
const longestProcess = 3 * time.Minute

// startProcess starts a command line with more variables in its environment; it is killed if the test ends before.
func startProcess(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longestProcess)
	t.Cleanup(cancel)
	p := &program{Cmd: exec.CommandContext(ctx, args[0], args[1:]...), tmp: t.TempDir()}
	p.WaitDelay = 10 * time.Second // if others hold its stderr open
	p.Env = append(append(os.Environ(), "TMPDIR="+p.tmp, "GORACE=atexit_sleep_ms=0"), env...)
	p.Stderr = &p.stderr
	var err error
	if p.stdout, err = p.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(p.stdout)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.ProcessState == nil { // the test has failed
			cancel()
			_ = p.Wait()
		}
	})
	return p
}

// read waits for a line that matches, and returns the output until then.
func (p *program) read(t *testing.T, pattern string) string {
	t.Helper()
	var text strings.Builder
	for want := regexp.MustCompile(pattern); ; {
		line, err := p.out.ReadString('\n')
		text.WriteString(line)
		if err != nil {
			_ = p.Wait() // stderr is complete then
			t.Fatalf("no line with %s: %v\n%s%s", pattern, err, &text, &p.stderr)
		}
		if want.MatchString(strings.TrimSuffix(line, "\n")) {
			return text.String()
		}
	}
}

// signal sends a signal to the process alone.
func (p *program) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// end waits for the end and returns what it printed until then.
func (p *program) end(t *testing.T, code int) string {
	t.Helper()
	text, err := io.ReadAll(p.out)
	if err != nil && !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if got := exitCode(p.Wait()); got != code {
		t.Errorf("exit code %d, want %d\n%s%s", got, code, text, &p.stderr)
	}
	return string(text)
}

// nothingLeft demands that no process, and no file, outlives it.
func (p *program) nothingLeft(t *testing.T) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(p.tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
	if pids := p.processes(t); len(pids) > 0 {
		t.Errorf("processes left behind: %v", pids)
	}
}

// processes are those with its folder in their environment: itself, and those that came from it.
func (p *program) processes(t *testing.T) []string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("looks into /proc")
	}
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range paths {
		env, err := os.ReadFile(path) // an error is a process that is gone, or somebody else's
		if err == nil && bytes.Contains(env, []byte("TMPDIR="+p.tmp+"\x00")) {
			found = append(found, filepath.Base(filepath.Dir(path)))
		}
	}
	return found
}

// awaitNone waits until all its processes are gone. Jobs may live on for a moment.
func (p *program) awaitNone(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for len(p.processes(t)) > 0 {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("processes left behind: %v", p.processes(t))
		}
	}
}
