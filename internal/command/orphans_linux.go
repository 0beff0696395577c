package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
)

// reapPause lies between the death of a child and the look for orphans, so that a burst of deaths is one
// look, which by then rarely meets a child whose own parent code is about to reap it.
const reapPause = 100 * time.Millisecond

// orphans looks after processes that lost their parent and became our children, because we are a subreaper or process 1 of a container. It reaps the
// dead ones; the living ones stay until the end of a run kills them.
//
// It must not reap every dead child: wait4 on a child that an exec.Cmd in this process still waits for would steal its exit status. But an os.Process
// holds a handle (a pidfd) of its process from its birth until it was waited for. So a dead child without a pidfd of ours has no waiter. The rule is
// exact, also for children that this package knows nothing about. Where the kernel has no pidfds (before 5.4) nothing is reaped: a zombie is the
// smaller harm.
type orphans struct {
	mu sync.Mutex // while it is held, no orphan's number becomes free
	// The last look at the living children. Runs that end meanwhile share the next one: it goes through all
	// processes of the machine, which takes milliseconds.
	looked time.Time // when it began
	byRun  map[string][]int
	spared map[int]bool // children that a run waits for

	quit chan struct{}
	done sync.WaitGroup
}

func newOrphans(log hclog.Logger) *orphans {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		log.Warn("cannot become the parent of orphaned processes", "error", err)
	}
	o := &orphans{quit: make(chan struct{})}
	if !handlesWork() {
		log.Warn("kernel without pidfds; orphaned processes are not reaped")
		return o
	}
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, unix.SIGCHLD)
	o.done.Go(func() {
		defer signal.Stop(deaths)
		o.watch(deaths)
	})
	return o
}

// spare leaves a child to a run, which reaps it: where no descriptor is free it has no handle.
func (o *orphans) spare(pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spared == nil {
		o.spared = map[int]bool{}
	}
	o.spared[pid] = true
}

// release ends that, once the child was reaped.
func (o *orphans) release(pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.spared, pid)
}

func (o *orphans) close() {
	close(o.quit)
	o.done.Wait()
}

// watch reaps after each death, until quit.
func (o *orphans) watch(deaths <-chan os.Signal) {
	for {
		o.reap()
		select {
		case <-o.quit:
			return
		case <-deaths:
		}
		pause := time.NewTimer(reapPause)
		select {
		case <-o.quit:
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// reap reaps every dead child without a waiter.
func (o *orphans) reap() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !hasChild(true) {
		return
	}
	children := proc.Children()
	// The handles come second: a child that was dead before and is waited for has one until it is reaped.
	owned, err := handles()
	if err != nil {
		return
	}
	for _, p := range children {
		if p.Dead() && !owned[p.PID] && !o.spared[p.PID] {
			_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
		}
	}
}

// sweep kills the living orphans whose environment says that they belong to a run, and those that come to us
// when their parents die of it, until none is left.
func (o *orphans) sweep(id string) {
	poll(context.Background(), func() bool {
		found, unclear := o.signal(id, unix.SIGKILL, noGroup)
		return len(found) == 0 && !unclear
	})
}

// signal signals the living orphans of one run that are not in a process group, or lists all of them if the signal is 0. unclear reports whether there might be more of them.
func (o *orphans) signal(id string, signal unix.Signal, but int) (found []int, unclear bool) {
	if !hasChild(false) {
		return nil, false
	}
	asked := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.looked.After(asked) {
		o.looked = time.Now()
		o.byRun = childrenByRun()
	}
	for _, pid := range o.byRun[id] {
		in, err := unix.Getpgid(pid)
		if now, _ := proc.RunOf(pid); now == id && (err != nil || in != but) { // the look may have been some time ago
			_ = unix.Kill(pid, signal)
		}
	}
	return o.byRun[id], len(o.byRun[unknown]) > 0
}

// unknown stands for the run of a child that can't be told at the moment.
const unknown = ""

// childrenByRun lists the living children that say which run they belong to, and those that can't say.
func childrenByRun() map[string][]int {
	children := map[string][]int{}
	for _, p := range proc.Children() {
		if p.Dead() {
			continue
		}
		switch id, known := proc.RunOf(p.PID); {
		case !known:
			children[unknown] = append(children[unknown], p.PID)
		case id != "":
			children[id] = append(children[id], p.PID)
		}
	}
	return children
}

// hasChild returns, at the cost of one system call, whether we have a child, or a dead one, at all.
func hasChild(dead bool) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if dead {
		return err == nil && info.Signo != 0
	}
	return !errors.Is(err, unix.ECHILD)
}

// handlesWork returns whether an os.Process has a handle on this kernel, and we may look at it. Before Linux 5.14 a process whose
// environment is protected may not, unless it is root's.
func handlesWork() bool {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return false
	}
	defer self.Release()
	seen := false
	err = self.WithHandle(func(uintptr) {
		owned, err := handles()
		seen = err == nil && owned[os.Getpid()]
	})
	return err == nil && seen
}

// handles lists the processes that pidfds of ours point at.
func handles() (map[int]bool, error) {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	owned := map[int]bool{}
	for _, f := range files {
		// anon_inode:[pidfd], since Linux 6.9 pidfd:[NUMBER]; a file that is closed by now was no child's.
		if kind, err := os.Readlink("/proc/self/fd/" + f.Name()); err != nil || !strings.Contains(kind, "pidfd") {
			continue
		}
		info, err := os.ReadFile("/proc/self/fdinfo/" + f.Name())
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil { // then it is not known whose handle that is
			return nil, err
		}
		_, pid, _ := strings.Cut(string(info), "\nPid:\t")
		var n int
		if _, err := fmt.Sscan(pid, &n); err == nil {
			owned[n] = true
		}
	}
	return owned, nil
}
