//go:build linux || darwin

package command

import (
	"context"
	"errors"
	"maps"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// group is a tree that is held only by its process group. The group's number is the PID of the leader.
type group struct {
	// escaped finds processes of the run that have left the group, by the run's id. It is nil if that is not possible.
	escaped escaped
	id      string
}

// noGroup is the number of no process group.
const noGroup = 0

// escaped finds processes of runs that have left their group.
type escaped interface {
	// signalRun sends a signal to the escaped processes of a run, except members of the group but. Signal 0 only lists them. unclear reports whether there
	// may be more.
	signalRun(id string, signal unix.Signal, but int) (found []int, unclear bool)
	// killRun kills the escaped processes of a run until none is left.
	killRun(id string)
}

func (group) placeLeader(attr *syscall.SysProcAttr) { attr.Setpgid = true }

func (g group) describe(r *Watched) { r.ID = g.id }

func (group) missingPart() error { return nil }

func (g group) terminate(leader int) {
	_ = unix.Kill(-leader, unix.SIGTERM)
	if g.escaped != nil {
		g.escaped.signalRun(g.id, unix.SIGTERM, leader) // the members have had their SIGTERM: a second one may end a program that is cleaning up
	}
}

// kill misses no process that is just being forked: the kernel holds forks of a group back while a signal to the group is delivered.
func (group) kill(leader int) { _ = unix.Kill(-leader, unix.SIGKILL) }

func (g group) membersAlive(leader int) bool {
	return groupLives(leader) || len(g.leftPrograms(leader)) > 0
}

func (g group) leftPrograms(leader int) []string {
	programs := groupPrograms(leader)
	if g.escaped != nil {
		found, _ := g.escaped.signalRun(g.id, 0, noGroup) // orphans may still be in the group
		maps.Copy(programs, programsOf(found))
	}
	return slices.Sorted(maps.Values(programs))
}

// awaitDeath sends no signal, and the kernel does not reuse the group's number while a member is left, dead or alive.
func (g group) awaitDeath(leader int) {
	pollUntil(context.Background(), func() bool { return groupGone(leader) })
	if g.escaped != nil {
		g.escaped.killRun(g.id)
	}
}

func (group) outOfMemory() bool { return false }

func (group) remove() {}

// groupGone reports whether the group has no living member. It reaps dead members that are children of this process. Other dead members don't count.
func groupGone(id int) bool {
	for {
		pid, err := unix.Wait4(-id, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return errors.Is(unix.Kill(-id, 0), unix.ESRCH) || !groupLives(id)
}
