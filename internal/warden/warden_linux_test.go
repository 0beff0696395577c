package warden

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/testtier"
)

// enough is how long a test waits for an event that must come; only a test that fails takes so long.
const enough = 30 * time.Second

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for late := time.Now().Add(enough); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("not within %v: %s", enough, what)
		}
	}
}

func startWarden(t *testing.T, cfg Config) *Warden {
	t.Helper()
	w, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// startGroup starts a process that leads a group and waits for ever, with a member. It is waited for after the test.
func startGroup(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & exec sleep 1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
	})
	return cmd
}

func living(pid int) bool {
	p, ok := proc.Of(pid)
	return ok && !p.Dead()
}

func groupLives(id int) bool { return scanProcesses().groups[id] }

func watchGroup(t *testing.T, w *Warden, r Run) (*Ward, int) {
	t.Helper()
	ward := w.Watch(r)
	if err := ward.Known(t.Context()); err != nil {
		t.Fatal(err)
	}
	leader := startGroup(t).Process.Pid
	ward.Started(leader)
	return ward, leader
}

func TestCloseEndsTheHelper(t *testing.T) {
	t.Parallel()
	w := startWarden(t, Config{})
	pid := w.PID()
	ward, leader := watchGroup(t, w, Run{Name: "a"})
	ward.Reap()
	ward.Release()
	ward.Release()
	w.Close()
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		t.Error("it is there")
	}
	if !living(leader) {
		t.Error("a run that was released was killed")
	}
	if err := w.Watch(Run{}).Known(t.Context()); !errors.Is(err, ErrClosed) || w.Ready() || !errors.Is(w.Err(), ErrClosed) {
		t.Errorf("after the end: %v, %v", err, w.Err())
	}
}

func TestDeadlineEndsARun(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := startWarden(t, Config{})
	const lease = time.Minute // a long one, of which little is left: so the warden strikes early enough for a busy machine
	deadline := bootTime() + 8*time.Second
	run := Run{Name: "a", Deadline: deadline, Lease: lease}
	_, leader := watchGroup(t, w, run)
	_, other := watchGroup(t, w, Run{Name: "b", Deadline: bootTime() + time.Hour, Lease: time.Hour})
	eventually(t, "the end of the group", func() bool { return !groupLives(leader) })
	if now := bootTime(); now > deadline {
		t.Errorf("%v after the deadline", now-deadline)
	} else if now < run.killAt() {
		t.Errorf("%v before the deadline", deadline-now)
	}
	if !living(other) {
		t.Error("another run was killed")
	}
}

func TestReapedGroupIsNotSignalled(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := startWarden(t, Config{})
	begun := bootTime()
	const lease = 8 * time.Second
	ward, leader := watchGroup(t, w, Run{Name: "a", Deadline: begun + lease, Lease: lease})
	_, witness := watchGroup(t, w, Run{Name: "b", Deadline: begun + lease, Lease: lease})
	ward.Reap()
	eventually(t, "the end of the other group", func() bool { return !groupLives(witness) })
	if !living(leader) {
		t.Error("its number was given up, and signalled")
	}
}

// changes notes what Ready becomes.
type changes struct {
	mu  sync.Mutex
	all []bool
}

func (c *changes) note(ready bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, ready)
}

func (c *changes) seen() []bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

func TestStoppedHelperIsReplacedAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	var c changes
	w := startWarden(t, Config{OnChange: c.note})
	ward, leader := watchGroup(t, w, Run{Name: "a", Deadline: bootTime() + time.Hour, Lease: time.Hour})
	first := w.PID()
	if err := unix.Kill(first, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 20_000 { // more than a pipe holds
		ward.Extend(bootTime() + time.Hour)
	}
	if err := w.Watch(Run{Name: "b"}).Known(t.Context()); err != nil {
		t.Error(err)
	}
	if w.PID() == first || living(first) {
		t.Error("it was not replaced")
	}
	// It is told in the same moment as those who wait for the next helper.
	eventually(t, "word that there was none, and is one again", func() bool { return slices.Equal(c.seen(), []bool{true, false, true}) })
	if !living(leader) {
		t.Error("the run died of it")
	}
}

func TestReapWaitsForNoHelperThatHangs(t *testing.T) {
	t.Parallel()
	w := startWarden(t, Config{})
	ward, leader := watchGroup(t, w, Run{Name: "a"})
	first := w.PID()
	if err := unix.Kill(first, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ward.Reap()
	if living(first) {
		t.Error("one that may signal the number lives")
	}
	eventually(t, "there is another", w.Ready)
	w.Close() // kills the registered runs, and this one is no group any more
	if !living(leader) {
		t.Error("the number was given up, and signalled by the next one")
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := startWarden(t, Config{})
	if err := unix.Kill(w.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	why := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := w.Watch(Run{Name: "a"}).Known(ctx); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

// mortal is a command that does not lead to a helper any more once the file is there.
func mortal(t *testing.T) (command []string, poison string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	poison = filepath.Join(t.TempDir(), "poison")
	return []string{"/bin/sh", "-c", `[ ! -e "$0" ] || { echo poisoned >&2; exit 1; }; exec "$1" warden`, poison, self}, poison
}

func TestHelperThatCanNotBeStarted(t *testing.T) {
	t.Parallel()
	command, poison := mortal(t)
	var c changes
	w := startWarden(t, Config{Command: command, OnChange: c.note})
	if err := os.WriteFile(poison, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(Config{Command: command}); err == nil {
		t.Error("another one was started")
	}
	if err := unix.Kill(w.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := w.Watch(Run{Name: "a"}).Known(t.Context()); !errors.Is(err, ErrGone) {
		t.Errorf("got %v", err)
	}
	<-w.Failed()
	if !errors.Is(w.Err(), ErrGone) || w.Ready() {
		t.Errorf("ready %v, %v", w.Ready(), w.Err())
	}
	if got := c.seen(); !slices.Equal(got, []bool{true, false}) {
		t.Errorf("ready was %v", got)
	}
}

func TestHelperReturnsWhenItCanBeStartedAgain(t *testing.T) {
	t.Parallel()
	command, poison := mortal(t)
	w := startWarden(t, Config{Command: command})
	if err := os.WriteFile(poison, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(w.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is missed", func() bool { return !w.Ready() })
	if err := os.Remove(poison); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is back", w.Ready)
}

func TestHelperInheritsNothing(t *testing.T) {
	t.Parallel()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	leak, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 100) // not to be closed in other programs
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	w := startWarden(t, Config{})
	if at, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", w.PID(), leak)); err == nil {
		t.Errorf("it has %s open", at)
	}
}

// A process that was between fork and exec when the replica was killed has neither a group that was told of nor the run's
// environment yet, but it holds the pipe until it has. So does the test, in its place.
// Promise: P7
func TestWhatExecutesAfterTheReplicaIsDeadIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	replica := exec.Command("/bin/sh", "-c", `"$0" warden <"$1" >"$2" & echo $! >"$3"; mv "$3" "$4"; wait`,
		self, pipe, filepath.Join(dir, "answers"), filepath.Join(dir, "pid.tmp"), filepath.Join(dir, "pid"))
	if err := replica.Start(); err != nil {
		t.Fatal(err)
	}
	in, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	id := filepath.Base(dir) + t.Name()
	for _, m := range []message{{Verb: hello, PID: replica.Process.Pid, Seq: 1}, {Verb: watch, Run: 1, ID: id, Seq: 2}} {
		if _, err := in.Write(m.encodeLine()); err != nil {
			t.Fatal(err)
		}
	}
	var warden int
	eventually(t, "the warden says its pid", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "pid"))
		_, err := fmt.Sscan(string(text), &warden)
		return err == nil
	})
	eventually(t, "an answer", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "answers"))
		return len(text) > 0
	})
	_ = replica.Process.Kill()
	_ = replica.Wait()
	time.Sleep(time.Second) // so that it has looked around, and found no process
	late := exec.Command("/bin/sleep", "1000")
	late.Env = []string{proc.RunID + "=" + id}
	if err := late.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	tooLate := time.AfterFunc(enough, func() { _ = late.Process.Signal(syscall.SIGTERM) })
	defer tooLate.Stop()
	if err := late.Wait(); err == nil || late.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
	eventually(t, "the end of the warden", func() bool { return !living(warden) })
}

func TestMainIsForReplicas(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", Subcommand)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("with no input at all: %v: %s", err, out)
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd = exec.Command("/proc/self/exe", Subcommand)
	cmd.Stdin = in
	if _, err := out.WriteString(`{"verb":"watch","run":1}` + "\n"); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if text, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("it obeys anybody: %s", text)
	}
}

// A number that was given to a stranger is known by the stranger's birth.
// Promise: P7
func TestStrangerIsNotHit(t *testing.T) {
	for _, byNumber := range []bool{false, true} {
		s := newSweeper()
		s.byNumber = byNumber
		leader := startGroup(t).Process.Pid
		p := s.newTarget("", "")
		p.setLeader(leader, processStart(leader)-1)
		p.terminate()
		p.killKnown()
		if !p.killRest() {
			t.Error("somebody else is taken for the run")
		}
		if !living(leader) {
			t.Error("somebody else was killed")
		}
	}
}

func TestGroupIsKilledByHandleAndByNumber(t *testing.T) {
	for _, how := range []string{"by handle", "by number", "without handles"} {
		t.Run(how, func(t *testing.T) {
			s := newSweeper()
			s.byNumber = how == "by number"
			leader := startGroup(t).Process.Pid
			eventually(t, "there is a member", func() bool { return members(leader) == 2 })
			p := s.newTarget("", "")
			p.setLeader(leader, processStart(leader))
			if how == "without handles" {
				own := p.(*processes)
				unix.Close(own.handle)
				own.handle = -1
			}
			if p.killRest() {
				t.Error("nobody was found")
			}
			p.killKnown()
			eventually(t, "the group is dead", func() bool { s.beginRound(); return p.killRest() && !groupLives(leader) })
			p.forgetLeader()
			p.killKnown() // no process is there
		})
	}
}

// members counts the living of a group.
func members(group int) int {
	n := 0
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		if s, ok := proc.Of(pid); ok && !s.Dead() && s.Group == group {
			n++
		}
	}
	return n
}

// When the leader is dead and reaped, its group is still reached by the handle, since that stands for the group as well.
func TestGroupIsKilledAfterItsLeaderWasReaped(t *testing.T) {
	s := newSweeper()
	cmd := startGroup(t)
	leader := cmd.Process.Pid
	eventually(t, "there is a member", func() bool { return members(leader) == 2 })
	p := s.newTarget("", "")
	p.setLeader(leader, processStart(leader))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	s.beginRound()
	p.killKnown()
	if s.byNumber {
		t.Skip("the kernel is older than 6.9: it can't signal a group by a handle")
	}
	eventually(t, "the member is dead", func() bool { s.beginRound(); return p.killRest() && !groupLives(leader) })
}
