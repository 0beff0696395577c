package process

import (
	"errors"
	"fmt"
	"slices"
	"sync"

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

// cgroupDirs returns the directories of the replica's cgroups.
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
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) { // temporary shortage: a later run may get its cgroup
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

// groupPrograms returns the programs of the living members of a process group, by PID.
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

// programsOf returns the programs of the given processes that are alive, by PID.
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
