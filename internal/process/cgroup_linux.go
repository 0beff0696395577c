package process

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
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
)

// cells creates the trees of runs: cgroups if possible, otherwise process groups.
type cells struct {
	log     hclog.Logger
	base    *base // the replica's cgroup; nil without cgroups
	reason  error // the error that explains a nil base
	orphans *orphans
	warned  sync.Once
}

func newCells(log hclog.Logger) *cells {
	b, err := newBase()
	return &cells{log: log, base: b, reason: err, orphans: newOrphans(log)}
}

func (c *cells) describe() string {
	if c.base == nil {
		return fmt.Sprintf("process groups (no writable cgroup v2: %v)", c.reason)
	}
	return "cgroup v2 at " + c.base.dir
}

func (c *cells) cgroupDirs() []string {
	if c.base == nil {
		return nil
	}
	return []string{c.base.dir, c.base.leaf}
}

// newTree creates the tree of a run. It fails for a run with limits if there is no cgroup.
func (c *cells) newTree(s *Spec) (tree, error) {
	limited := s.Limits != (Limits{})
	if c.base == nil && limited {
		return nil, c.allowLimits(s.Limits)
	}
	if c.base != nil {
		t, err := c.base.makeCgroup(s.Name)
		if err == nil {
			return t.applyLimits(s.Limits)
		}
		if limited {
			return nil, fmt.Errorf("%w: %w", ErrLimits, err)
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) { // temporary shortage: fail instead of running without a cgroup
			return nil, fmt.Errorf("cgroup of the run: %w", err)
		}
		c.warned.Do(func() {
			c.log.Warn("no cgroup for a run, which has only its process group; logged once", "run_id", s.Name, "error", err)
		})
	}
	g := group{}
	if id, ok := lookupVariable(s.Env, proc.RunID); ok && id != "" && id == s.Name {
		g.id, g.escaped = id, c.orphans
	}
	return g, nil
}

func (c *cells) close() error {
	c.orphans.close()
	if c.base == nil {
		return nil
	}
	return c.base.close()
}

// awaitExit blocks until the child is dead, without reaping it.
func awaitExit(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("watch the command: %w", err)
		}
	}
}

func groupPrograms(id int) map[int]string {
	all, _ := proc.All()
	var pids []int
	for _, p := range all {
		if p.Group == id && !p.Dead() {
			pids = append(pids, p.PID)
		}
	}
	return programsOf(pids)
}

func programsOf(pids []int) map[int]string {
	programs := map[int]string{}
	for _, pid := range pids {
		if p, ok := proc.Of(pid); ok && !p.Dead() {
			programs[pid] = proc.Program(pid)
		}
	}
	return programs
}

// groupLives reports whether a process group has a living member. It also returns true if this process may not signal any member, or if /proc can't be read.
func groupLives(id int) bool {
	if errors.Is(unix.Kill(-id, 0), unix.EPERM) {
		return true
	}
	all, err := proc.All()
	return err != nil || slices.ContainsFunc(all, func(p proc.Process) bool { return p.Group == id && !p.Dead() })
}

// removeTime bounds the wait for the kernel to remove a cgroup that has become empty.
const removeTime = time.Second

// base is the replica's cgroup. Every run gets a cgroup below it. The replica itself stays in its original cgroup, unless enableControllers moves it to leaf.
type base struct {
	dir  string
	leaf string   // cgroup beside dir, for the replica itself
	lock *os.File // dir, open and locked: removeStale of another replica does not remove a locked directory
	runs atomic.Uint64
}

// newBase creates the base below this process's own cgroup, and tests every operation that a run needs.
func newBase() (*base, error) {
	own, err := ownCgroup("/proc/self/mountinfo", "/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	removeStale(own)
	for try := 1; ; try++ {
		b, err := makeBase(own)
		// Another replica that starts at the same time may have removed the new directory before it was locked.
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
		err = b.tryCgroup()
	}
	if err != nil {
		_ = b.close()
		return nil, err
	}
	return b, nil
}

// tryCgroup creates a cgroup as for a run, tries to execute a missing program in it, and writes to its cgroup.kill (Linux 5.14).
func (b *base) tryCgroup() error {
	c, err := b.makeCgroup("probe")
	if err != nil {
		return err
	}
	defer c.remove()
	attr := &syscall.SysProcAttr{}
	c.placeLeader(attr)
	nothing := filepath.Join(c.dir, "nothing")
	// ENOENT comes from exec, when the process is already in the cgroup. Any other error comes from an earlier step.
	_, err = syscall.ForkExec(nothing, []string{nothing}, &syscall.ProcAttr{Sys: attr})
	if !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("start a process in %s: %w", c.dir, err)
	}
	_, err = c.killer.WriteString("1")
	return err
}

// removeStale removes the cgroups of dead replicas. It leaves a cgroup that is locked by a living replica or that contains a process.
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

func (b *base) makeCgroup(name string) (*cgroup, error) {
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

// cgroup is a tree whose processes are found by their cgroup and by their process group. A process with the right privileges can move itself to another
// cgroup (pam_systemd does, for sudo and su), but such a process rarely leaves the process group as well.
type cgroup struct {
	group
	dir string
	fd  *os.File
	// events and killer are used at the end of the run. They are opened before its start, because later there may be no free descriptor.
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

func (c *cgroup) placeLeader(attr *syscall.SysProcAttr) {
	c.group.placeLeader(attr)
	attr.UseCgroupFD, attr.CgroupFD = true, int(c.fd.Fd())
}

func (c *cgroup) describe(r *Watched) { r.Cgroup = c.dir }

// missingPart is called after a failed start. The cgroup can be missing because the warden removes the cgroup of a run that it has killed.
func (c *cgroup) missingPart() error {
	if err := unix.Access(c.dir, unix.F_OK); err != nil {
		return fmt.Errorf("its cgroup %s was removed", c.dir)
	}
	return nil
}

// terminate opens a pidfd of each process, and then reads the list of members again. It signals only the processes in both lists: if a PID was reused between
// the two reads, the pidfd still refers to the dead process. If no pidfd could be opened, terminate signals the process group.
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
	_ = unix.Kill(leader, unix.SIGTERM) // the leader may have left the cgroup; it is unreaped, so its PID is not reused
	for pid, fd := range handles {
		if inside[pid] && pid != leader {
			_ = unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
		}
		unix.Close(fd)
	}
}

// kill also reaches processes that are being forked, because the kernel includes them in cgroup.kill.
func (c *cgroup) kill(leader int) {
	if c.isPopulated() {
		_, _ = c.killer.WriteString("1")
	}
	c.group.kill(leader)
}

func (c *cgroup) membersAlive(leader int) bool {
	return c.isPopulated() || c.group.membersAlive(leader)
}

// leftPrograms takes one system call if no process is left. It ignores processes of the group that have moved to another cgroup, because a search for them
// would read all processes of the machine.
func (c *cgroup) leftPrograms(leader int) []string {
	if !c.isPopulated() {
		return nil
	}
	programs := programsOf(slices.Collect(maps.Keys(proc.CgroupProcesses(c.dir))))
	return slices.Sorted(maps.Values(programs))
}

func (c *cgroup) awaitDeath(leader int) {
	pollUntil(context.Background(), func() bool { return !c.isPopulated() })
	c.group.awaitDeath(leader)
}

func (c *cgroup) remove() {
	c.close()
	late, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	// If the directory can't be removed now, base.close removes it.
	pollUntil(late, func() bool { return proc.RemoveCgroup(c.dir) == nil })
}

// isPopulated reports whether a living process is in the cgroup or below it.
func (c *cgroup) isPopulated() bool {
	var events [64]byte
	n, err := unix.Pread(int(c.events.Fd()), events[:], 0)
	return proc.Populated(events[:max(n, 0)], err)
}

// readAt reads the beginning of a file in a directory. It takes fewer system calls than os.ReadFile.
func readAt(dir *os.File, name string, buffer []byte) (int, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return unix.Read(fd, buffer)
}

// writeControl writes to a control file of a cgroup. It does not create the file: a missing file means that the cgroup lacks the feature.
func writeControl(dir, file, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// ownCgroup returns the directory of this process's version 2 cgroup. The arguments are paths of the files /proc/PID/mountinfo and /proc/PID/cgroup. In the
// hybrid layout, version 2 is at /sys/fs/cgroup/unified without controllers. It is usable, because membership and cgroup.kill need no controller.
func ownCgroup(mountinfo, cgroup string) (string, error) {
	member, err := os.ReadFile(cgroup)
	if err != nil {
		return "", err
	}
	path, err := unifiedPath(string(member))
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile(mountinfo)
	if err != nil {
		return "", err
	}
	return mountedPath(string(mounts), path)
}

// unifiedPath returns the path of the version 2 line of /proc/PID/cgroup, "0::/path".
func unifiedPath(member string) (string, error) {
	for line := range strings.Lines(member) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			if strings.HasPrefix(path, "/..") {
				return "", errors.New("this process is outside of its cgroup namespace")
			}
			return path, nil
		}
	}
	return "", errors.New("this process is in none")
}

// mountedPath returns the directory of the cgroup in the file system, given its path in the hierarchy.
func mountedPath(mountinfo, path string) (string, error) {
	for _, m := range proc.ParseMounts(mountinfo) {
		rel, err := filepath.Rel(m.Root, path)
		if m.Type != "cgroup2" || err != nil || strings.HasPrefix(m.Root, "/..") || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		return filepath.Join(m.Point, rel), nil
	}
	return "", fmt.Errorf("no mount shows %s", path)
}
