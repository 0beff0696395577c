//go:build linux

package process

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/warden"
)

// The environment variables that direct the test binary when it acts as a replica.
const (
	replicaMode   = "COMMAND_TEST_REPLICA" // cgroup or group
	replicaScript = "COMMAND_TEST_SCRIPT"
	replicaRuns   = "COMMAND_TEST_RUNS"   // how often the script is run, all at once
	replicaLease  = "COMMAND_TEST_LEASE"  // "" for none
	replicaGrace  = "COMMAND_TEST_GRACE"  // the kill grace
	replicaRenew  = "COMMAND_TEST_RENEW"  // how often the lease is extended; "" for never
	replicaSilent = "COMMAND_TEST_SILENT" // the warden is not told of the leaders' numbers
	replicaHold   = "COMMAND_TEST_HOLD"
	replicaLimits = "COMMAND_TEST_LIMITS" // the runs have some
	replicaPlace  = "COMMAND_TEST_PLACE"  // the cgroup to move to; "" for the test's
)

// clock is CLOCK_BOOTTIME.
func clock() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return time.Duration(now.Nano())
}

// testLease is a lease that does not end.
type testLease struct {
	length   time.Duration
	mu       sync.Mutex
	deadline time.Duration
	hear     func(time.Duration)
}

func (l *testLease) Length() time.Duration { return l.length }

func (l *testLease) Deadline() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

func (l *testLease) OnExtend(f func(time.Duration)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hear = f
	return func() {}
}

func (l *testLease) extend() {
	l.mu.Lock()
	l.deadline = clock() + l.length
	deadline, hear := l.deadline, l.hear
	l.mu.Unlock()
	if hear != nil {
		hear(deadline)
	}
}

// watchman is a warden as a host wants it.
type watchman struct {
	*warden.Warden
	silent bool
}

func (w watchman) Watch(r Watched) Ward {
	ward := w.Warden.Watch(warden.Run(r))
	if w.silent {
		return silentWard{ward}
	}
	return ward
}

// silentWard belongs to a replica that is killed right after a start.
type silentWard struct{ Ward }

func (silentWard) Started(int) {}

// beReplica runs scripts until they end. It prints its warden, the deadline, the scripts' lines and their ends on stdout.
func beReplica() error {
	if place := os.Getenv(replicaPlace); place != "" {
		if err := writeControl(place, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
			return err
		}
	}
	w, err := warden.Start(warden.Config{Logger: hclog.New(&hclog.LoggerOptions{Output: os.Stderr})})
	if err != nil {
		return err
	}
	host, err := hostIn(os.Getenv(replicaMode) == "cgroup", watchman{w, os.Getenv(replicaSilent) != ""})
	if err != nil {
		return err
	}
	if host.cells.base != nil {
		fmt.Println("base", host.cells.base.dir)
	}
	if err := host.Check(Spec{Limits: limitsOfReplica()}); err != nil {
		return err
	}
	fmt.Println("warden", w.PID())
	watching, stop := context.WithCancel(context.Background())
	var beside, runs sync.WaitGroup
	beside.Go(func() { tellWardens(watching, w) })
	n, _ := strconv.Atoi(os.Getenv(replicaRuns))
	for i := range max(n, 1) {
		runs.Go(func() { runScript(host, i) })
	}
	runs.Wait()
	stop()
	beside.Wait()
	if err := host.Close(); err != nil {
		return err
	}
	fmt.Println("closing the warden")
	w.Close()
	return nil
}

// tellWardens says when there is another one.
func tellWardens(ctx context.Context, w *warden.Warden) {
	for pid := w.PID(); ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if now := w.PID(); now != pid && w.Ready() {
			pid = now
			fmt.Println("warden", pid)
		}
	}
}

func limitsOfReplica() (l Limits) {
	if os.Getenv(replicaLimits) != "" {
		l = Limits{Memory: 64 << 20, Pids: 32}
	}
	return l
}

func runScript(host *Host, i int) {
	id := fmt.Sprintf("replica-%d-run-%d", os.Getpid(), i)
	s := Spec{
		Name: id, Argv: []string{"/bin/sh", "-c", os.Getenv(replicaScript)},
		Env:    []string{"PATH=" + os.Getenv("PATH"), proc.RunID + "=" + id, "HOLD=" + os.Getenv(replicaHold)},
		Limits: limitsOfReplica(),
		Line:   func(_ string, line []byte) { fmt.Printf("%s\n", line) },
	}
	s.KillGrace, _ = time.ParseDuration(os.Getenv(replicaGrace))
	over, end := context.WithCancel(context.Background())
	var renewals sync.WaitGroup
	if length, err := time.ParseDuration(os.Getenv(replicaLease)); err == nil {
		lease := &testLease{length: length}
		lease.extend()
		fmt.Println("deadline", int64(lease.Deadline()))
		s.Lease = lease
		if every, err := time.ParseDuration(os.Getenv(replicaRenew)); err == nil {
			renewals.Go(func() {
				for over.Err() == nil {
					time.Sleep(every)
					lease.extend()
				}
			})
		}
	}
	exit := host.Run(context.Background(), context.Background(), s)
	end()
	renewals.Wait()
	if !exit.Killed.IsZero() {
		fmt.Println("killed", int64(clock()-time.Since(exit.Killed)))
	}
	fmt.Println("exit", exit.Status(), exit.Err)
}

// testReplica is such a process.
type testReplica struct {
	t     *testing.T
	cmd   *exec.Cmd
	hold  string
	mu    sync.Mutex
	lines []string
	ended chan struct{}
}

// startTestReplica starts a replica that runs a script; more is added to its environment.
func startTestReplica(t *testing.T, mode, script string, more ...string) *testReplica {
	t.Helper()
	if mode == "cgroup" {
		newTestHost(t, true) // skips the test where there are none
	}
	r := &testReplica{t: t, hold: filepath.Join(t.TempDir(), "hold"), ended: make(chan struct{})}
	if err := unix.Mkfifo(r.hold, 0o666); err != nil {
		t.Fatal(err)
	}
	r.cmd = exec.Command("/proc/self/exe")
	r.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "SECRET=hunter2",
		replicaMode + "=" + mode, replicaScript + "=" + script, replicaHold + "=" + r.hold}, more...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr strings.Builder
	r.cmd.Stderr = &stderr
	r.cmd.WaitDelay = 2 * time.Second // its jobs may hold the pipe open
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		for in := bufio.NewScanner(out); in.Scan(); {
			r.mu.Lock()
			r.lines = append(r.lines, in.Text())
			r.mu.Unlock()
		}
		_ = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		if t.Failed() { // the rest of the test, which ends them, may not have run
			r.killHolders()
		}
		<-r.ended
		if t.Failed() {
			t.Logf("the replica said %q\n%s", r.lines, stderr.String())
		}
	})
	return r
}

// killHolders kills whatever is left of the replica's runs, and wardens that are stopped.
func (r *testReplica) killHolders() {
	for _, text := range r.said("warden") {
		pid, _ := strconv.Atoi(text)
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) == "warden\n" {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	all, _ := proc.All()
	for _, p := range all {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
		if bytes.Contains(env, []byte("HOLD="+r.hold)) {
			_ = unix.Kill(p.PID, unix.SIGKILL)
		}
	}
}

// said lists the rests of the lines that begin with the word.
func (r *testReplica) said(word string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, l := range r.lines {
		if rest, ok := strings.CutPrefix(l, word+" "); ok {
			all = append(all, rest)
		}
	}
	return all
}

// await waits for n lines that begin with a word.
func (r *testReplica) await(word string, n int) []string {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d lines of %s", n, word), func() bool { return len(r.said(word)) >= n })
	return r.said(word)
}

func (r *testReplica) numbers(word string, n int) []int {
	r.t.Helper()
	var all []int
	for _, text := range r.await(word, n) {
		number, err := strconv.Atoi(text)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, number)
	}
	return all
}

// newestWarden is the pid of the nth one.
func (r *testReplica) newestWarden(n int) int { r.t.Helper(); return r.numbers("warden", n)[n-1] }

func (r *testReplica) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}
