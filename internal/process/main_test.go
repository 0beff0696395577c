//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/hungfs"
	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/warden"
)

// TestMain makes the test binary a replica and its warden, too, so that these can be killed.
func TestMain(m *testing.M) {
	switch {
	case hungfs.Serve():
	case len(os.Args) == 2 && os.Args[1] == warden.Subcommand:
		if err := warden.Main(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case os.Getenv(replicaMode) != "":
		if err := beReplica(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		goleak.VerifyTestMain(m)
	}
}

// patience is how long a test waits for an event that must come; only a test that fails takes so long.
const patience = 2 * time.Minute

// newTestHost makes a host that uses cgroups, or one that has only process groups.
func newTestHost(t testing.TB, cgroups bool) *Host {
	t.Helper()
	h, err := hostIn(cgroups, nil)
	if err != nil {
		if os.Getenv("CRONCLAVE_TEST_LIMITS") == "1" {
			t.Fatalf("this machine is said to have a cgroup v2 for us: %v", err)
		}
		t.Skipf("no writable cgroup v2 on this machine: %v", err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close the host: %v", err)
		}
	})
	return h
}

// hostIn makes a host of one mode, whatever the machine offers.
func hostIn(cgroups bool, w Warden) (*Host, error) {
	log := hclog.NewNullLogger()
	c := &cells{log: log, reason: errors.New("switched off by the test"), orphans: newOrphans(log)}
	if cgroups {
		if c.base, c.reason = newBase(); c.reason != nil {
			c.orphans.close()
			return nil, c.reason
		}
	}
	return newHost(log, c, w), nil
}

// everyMode runs a test with cgroups and with process groups only.
func everyMode(t *testing.T, test func(t *testing.T, h *Host)) {
	for _, mode := range []string{"cgroup", "group"} {
		t.Run(mode, func(t *testing.T) { test(t, newTestHost(t, mode == "cgroup")) })
	}
}

// script is a run of a shell script. Its lines of output are kept, and a test can wait for one.
type script struct {
	t     *testing.T
	host  *Host
	spec  Spec
	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed and replaced with each line
	stop  context.CancelFunc
	kill  context.CancelFunc
	ended chan Exit
}

// newScript prepares a script. In it $HOLD is a pipe without a writer: "read _ <$HOLD" and "exec cat $HOLD" wait for ever, without a process more.
// $GO is another pipe, for the script's own use. A script with a trap waits by "while :; do sleep 1; done" instead: a signal between the look for
// signals and open(2) would not wake the shell.
func newScript(t *testing.T, h *Host, text string) *script {
	t.Helper()
	dir := t.TempDir()
	s := &script{t: t, host: h, more: make(chan struct{}), ended: make(chan Exit, 1)}
	env := []string{"PATH=" + os.Getenv("PATH"), proc.RunID + "=" + filepath.Base(dir) + t.Name()}
	for _, name := range []string{"HOLD", "GO"} {
		path := filepath.Join(dir, name)
		if err := unix.Mkfifo(path, 0o666); err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+path)
	}
	s.spec = Spec{Name: filepath.Base(dir) + t.Name(), Argv: []string{"/bin/sh", "-c", text}, Env: env, Keep: 4096, Line: s.line}
	return s
}

func (s *script) line(stream string, line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, stream+" "+string(line))
	close(s.more)
	s.more = make(chan struct{})
}

// start runs the script in the background, until end.
func (s *script) start() {
	var stop, kill context.Context
	stop, s.stop = context.WithCancel(context.Background())
	kill, s.kill = context.WithCancel(context.Background())
	s.t.Cleanup(s.stop)
	s.t.Cleanup(s.kill)
	go func() { s.ended <- s.host.Run(stop, kill, s.spec) }()
}

// await waits for a line of stdout that begins with the words, and returns the rest of it.
func (s *script) await(words string) string {
	s.t.Helper()
	late := time.After(patience)
	for {
		s.mu.Lock()
		more := s.more
		for _, l := range s.lines {
			if rest, ok := strings.CutPrefix(l, "stdout "+words); ok {
				s.mu.Unlock()
				return strings.TrimSpace(rest)
			}
		}
		s.mu.Unlock()
		select {
		case <-more:
		case <-late:
			s.mu.Lock()
			came := slices.Clone(s.lines)
			s.mu.Unlock()
			s.t.Fatalf("no line %q came, only %q", words, came)
		}
	}
}

// release lets a script go on that waits for a line from the pipe of this name. A script waits for a pipe once:
// the next reader might still meet this writer, and take its end for its own.
func (s *script) release(pipe string) {
	s.t.Helper()
	path, _ := lookupVariable(s.spec.Env, pipe)
	if err := os.WriteFile(path, []byte("\n"), 0); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) awaitPID(words string) int {
	s.t.Helper()
	pid, err := strconv.Atoi(s.await(words))
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// end waits for the end of the run.
func (s *script) end() Exit {
	s.t.Helper()
	select {
	case e := <-s.ended:
		return e
	case <-time.After(patience):
		s.kill()
		s.t.Fatalf("the run does not end")
	}
	return Exit{}
}

// sh runs a script to its end.
func sh(t *testing.T, h *Host, text string) Exit {
	t.Helper()
	s := newScript(t, h, text)
	s.start()
	return s.end()
}

// living returns whether there is such a process, other than a zombie.
func living(t *testing.T, pid int) bool {
	t.Helper()
	p, ok := proc.Of(pid)
	return ok && !p.Dead()
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	late, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pollUntil(late, holds)
	if late.Err() != nil {
		t.Fatalf("not within %s: %s", patience, what)
	}
}
