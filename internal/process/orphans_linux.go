package process

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

// reapPause is the time between the death of a child and the search for orphans. It lets one search serve a burst of deaths, and lets the waiter of a child
// reap the child first.
const reapPause = 100 * time.Millisecond

// orphans handles processes that lost their parent and became children of this process, which is a subreaper or process 1 of a container. It reaps the dead
// ones. At the end of a run, killRun kills the living orphans of the run.
//
// It reaps a dead child only if this process has no pidfd of the child. An os.Process holds a pidfd until the child was waited for, and if wait4 here reaped
// the child first, the waiter would lose the exit status. This rule also protects the children of other packages. On a kernel without pidfds (before 5.4)
// nothing is reaped, because zombies do less harm than lost exit statuses.
type orphans struct {
	mu sync.Mutex // guards the fields below and reaping: while mu is held, the PIDs of orphans are not reused
	// The result of the last search for living children. Runs that end during a search share the next search, because a search reads all processes of the
	// machine, which takes milliseconds.
	looked time.Time // start of the last search
	byRun  map[string][]int
	spared map[int]bool // children that a run waits for and reaps

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
		o.watchDeaths(deaths)
	})
	return o
}

// spareChild marks a child that its run will reap. A pidfd is not enough, because os.FindProcess opens none without a free descriptor.
func (o *orphans) spareChild(pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spared == nil {
		o.spared = map[int]bool{}
	}
	o.spared[pid] = true
}

func (o *orphans) releaseChild(pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.spared, pid)
}

func (o *orphans) close() {
	close(o.quit)
	o.done.Wait()
}

func (o *orphans) watchDeaths(deaths <-chan os.Signal) {
	for {
		o.reapDead()
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

func (o *orphans) reapDead() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !hasChild(true) {
		return
	}
	children := proc.Children()
	// The pidfds are listed after the children, so a dead child in the list has a pidfd by now if something waits for it.
	owned, err := pidfdTargets()
	if err != nil {
		return
	}
	for _, p := range children {
		if p.Dead() && !owned[p.PID] && !o.spared[p.PID] {
			_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
		}
	}
}

// killRun kills the living orphans with the run's id in their environment, and repeats this until no such process is left, because the children of a killed
// process become orphans.
func (o *orphans) killRun(id string) {
	pollUntil(context.Background(), func() bool {
		found, unclear := o.signalRun(id, unix.SIGKILL, noGroup)
		return len(found) == 0 && !unclear
	})
}

// signalRun sends a signal to the living orphans of a run. It skips members of one process group (the argument but). Signal 0 sends nothing. signalRun
// returns all living orphans of the run; unclear reports whether there may be more.
func (o *orphans) signalRun(id string, signal unix.Signal, but int) (found []int, unclear bool) {
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
		if now, _ := proc.RunOf(pid); now == id && (err != nil || in != but) { // the list may be old, so the PID may belong to another process now
			_ = unix.Kill(pid, signal)
		}
	}
	return o.byRun[id], len(o.byRun[unknown]) > 0
}

// unknown is the key of children whose run can't be read at the moment.
const unknown = ""

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

// hasChild reports whether this process has any child or, with dead, a dead child. It takes one system call.
func hasChild(dead bool) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if dead {
		return err == nil && info.Signo != 0
	}
	return !errors.Is(err, unix.ECHILD)
}

// handlesWork reports whether an os.Process has a pidfd on this kernel, and whether this process may list its pidfds. Before Linux 5.14, a process that is
// not dumpable (PR_SET_DUMPABLE 0, which protects its environment) may not list its pidfds unless it is root.
func handlesWork() bool {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return false
	}
	defer self.Release()
	seen := false
	err = self.WithHandle(func(uintptr) {
		owned, err := pidfdTargets()
		seen = err == nil && owned[os.Getpid()]
	})
	return err == nil && seen
}

func pidfdTargets() (map[int]bool, error) {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	owned := map[int]bool{}
	for _, f := range files {
		// The target of the link is anon_inode:[pidfd] or, since Linux 6.9, pidfd:[NUMBER]. A file that was closed after ReadDir is skipped: a pidfd is
		// closed only when nothing waits for its process any more.
		if kind, err := os.Readlink("/proc/self/fd/" + f.Name()); err != nil || !strings.Contains(kind, "pidfd") {
			continue
		}
		info, err := os.ReadFile("/proc/self/fdinfo/" + f.Name())
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil { // the pidfd may refer to any child, so no child may be reaped
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
