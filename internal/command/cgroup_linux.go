package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
)

// removeTime is how long the kernel may take to let go of a cgroup that has become empty.
const removeTime = time.Second

// base is the replica's cgroup, below which each run gets one. The replica itself stays where it is, until runs have limits.
type base struct {
	dir  string
	leaf string   // where the replica is then, beside dir
	lock *os.File // the directory, locked as long as we live, so that no replica takes it for a dead one's
	runs atomic.Uint64
}

// newBase makes a cgroup below our own and tries on it all that a run will need.
func newBase() (*base, error) {
	own, err := ownCgroup("/proc/self/mountinfo", "/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	removeStale(own)
	for try := 1; ; try++ {
		b, err := makeBase(own)
		// Another replica that starts now may clear away what we have made but not locked yet.
		if err == nil || try == 3 || !errors.Is(err, fs.ErrNotExist) {
			return b, err
		}
	}
}

func makeBase(own string) (*base, error) {
	dir, err := os.MkdirTemp(own, fmt.Sprintf("cronclave-%d-", os.Getpid()))
	if err != nil {
		return nil, err
	}
	b := &base{dir: dir, leaf: filepath.Join(own, fmt.Sprintf("cronclave-%d-replica", os.Getpid()))}
	if b.lock, err = os.Open(dir); err == nil {
		err = unix.Flock(int(b.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = b.probe()
	}
	if err != nil {
		_ = b.close()
		return nil, err
	}
	return b, nil
}

// probe makes a cgroup as for a run, starts a process in it that ends by finding nothing to execute, and
// writes its cgroup.kill (Linux 5.14).
func (b *base) probe() error {
	c, err := b.child("probe")
	if err != nil {
		return err
	}
	defer c.remove()
	attr := &syscall.SysProcAttr{}
	c.place(attr)
	nothing := filepath.Join(c.dir, "nothing")
	// ENOENT comes from the execution, after the process was born inside; any other error from before it.
	_, err = syscall.ForkExec(nothing, []string{nothing}, &syscall.ProcAttr{Sys: attr})
	if !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("start a process in %s: %w", c.dir, err)
	}
	_, err = c.killer.WriteString("1")
	return err
}

// removeStale removes the cgroups of killed replicas. It leaves those of a living replica, and those with a process in them.
func removeStale(own string) {
	dirs, _ := filepath.Glob(filepath.Join(own, "cronclave-*"))
	for _, dir := range dirs {
		f, err := os.Open(dir)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = proc.RemoveCgroup(dir)
		}
		f.Close()
	}
}

func (b *base) close() error {
	err := proc.RemoveCgroup(b.dir)
	if b.lock != nil {
		b.lock.Close()
	}
	if err != nil {
		return fmt.Errorf("remove the cgroup %s: %w", b.dir, err)
	}
	if err := b.goHome(); err != nil {
		return fmt.Errorf("leave the cgroup %s: %w", b.leaf, err)
	}
	return nil
}

// child makes a cgroup for one run.
func (b *base) child(name string) (*cgroup, error) {
	clean := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '-' || r == '_' || '0' <= r && r <= '9' || 'A' <= r&^0x20 && r&^0x20 <= 'Z') {
			return r
		}
		return '_'
	}, name[:min(len(name), 128)])
	dir := filepath.Join(b.dir, fmt.Sprintf("%s-%d", clean, b.runs.Add(1)))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	c, err := openCgroup(dir)
	if err != nil {
		_ = proc.RemoveCgroup(dir)
		return nil, err
	}
	return c, nil
}

// cgroup is a tree that is held by a cgroup, and by its process group: a process with the right to do so can
// move itself to another cgroup (pam_systemd does, for sudo and su), but it rarely leaves both.
type cgroup struct {
	group
	dir string
	fd  *os.File // the directory
	// events and killer are what the end of a run needs. They are open from its start: a replica may have no free descriptor then.
	events, killer *os.File
}

func openCgroup(dir string) (*cgroup, error) {
	c := &cgroup{dir: dir}
	for _, f := range []struct {
		file **os.File
		name string
		flag int
	}{{&c.fd, ".", os.O_RDONLY}, {&c.events, "cgroup.events", os.O_RDONLY}, {&c.killer, "cgroup.kill", os.O_WRONLY}} {
		var err error
		if *f.file, err = os.OpenFile(filepath.Join(dir, f.name), f.flag, 0); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *cgroup) close() {
	for _, f := range []*os.File{c.fd, c.events, c.killer} {
		if f != nil {
			f.Close()
		}
	}
}

func (c *cgroup) place(attr *syscall.SysProcAttr) {
	c.group.place(attr)
	attr.UseCgroupFD, attr.CgroupFD = true, int(c.fd.Fd())
}

func (c *cgroup) describe(r *Watched) { r.Cgroup = c.dir }

// missing is asked when nothing could be started. The warden removes the cgroup of a run that is late.
func (c *cgroup) missing() error {
	if err := unix.Access(c.dir, unix.F_OK); err != nil {
		return fmt.Errorf("its cgroup %s was removed", c.dir)
	}
	return nil
}

// terminate signals each process by a handle that was opened before the process was seen in the cgroup: if
// the number was given to a stranger meanwhile, the handle belongs to the dead one. Without a free descriptor there are no handles: then the group is signalled.
func (c *cgroup) terminate(leader int) {
	handles := map[int]int{}
	for pid := range proc.CgroupProcesses(c.dir) {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			handles[pid] = fd
		}
	}
	if len(handles) == 0 {
		c.group.terminate(leader)
		return
	}
	inside := proc.CgroupProcesses(c.dir)
	_ = unix.Kill(leader, unix.SIGTERM) // wherever it is: unreaped, so its number is safe
	for pid, fd := range handles {
		if inside[pid] && pid != leader {
			_ = unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
		}
		unix.Close(fd)
	}
}

// kill misses no process: the kernel kills also those that are being forked.
func (c *cgroup) kill(leader int) {
	if c.populated() {
		_, _ = c.killer.WriteString("1")
	}
	c.group.kill(leader)
}

func (c *cgroup) alive(leader int) bool { return c.populated() || c.group.alive(leader) }

// left costs one system call if nothing is left. Processes of the group that moved to another cgroup are passed over: they take a look at all of the machine's.
func (c *cgroup) left(leader int) []string {
	if !c.populated() {
		return nil
	}
	programs := programsOf(slices.Collect(maps.Keys(proc.CgroupProcesses(c.dir))))
	return slices.Sorted(maps.Values(programs))
}

func (c *cgroup) settle(leader int) {
	poll(context.Background(), func() bool { return !c.populated() })
	c.group.settle(leader)
}

func (c *cgroup) remove() {
	c.close()
	late, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	// A directory that is left is removed with the base.
	poll(late, func() bool { return proc.RemoveCgroup(c.dir) == nil })
}

// populated returns whether a living process is in the cgroup or in one that was made below it.
func (c *cgroup) populated() bool {
	var events [64]byte
	n, err := unix.Pread(int(c.events.Fd()), events[:], 0)
	return proc.Populated(events[:max(n, 0)], err)
}

// readAt reads the beginning of a file in a directory, with fewer system calls than os.ReadFile.
func readAt(dir *os.File, name string, buffer []byte) (int, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return unix.Read(fd, buffer)
}

// writeControl writes to a file of a cgroup. It is there, or the cgroup can't do that.
func writeControl(dir, file, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
