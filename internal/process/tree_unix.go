//go:build linux || darwin

package process

import (
	"context"
	"errors"
	"maps"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/backoff"
)

// tree is the set of processes of one run. The methods that send signals may be called only while the leader is unreaped.
type tree interface {
	// placeLeader makes the leader start in the tree.
	placeLeader(*syscall.SysProcAttr)
	// describe sets the fields of Watched by which the warden finds the tree.
	describe(*Watched)
	// missingPart returns an error if a part of the tree, such as its cgroup, was removed. No command can then start in the tree.
	missingPart() error
	// terminate sends SIGTERM to every process, once.
	terminate(leader int)
	kill(leader int)
	// membersAlive reports whether a process other than the unreaped leader is alive.
	membersAlive(leader int) bool
	// leftPrograms returns the programs of the processes that outlive the leader, which is dead and unreaped.
	leftPrograms(leader int) []string
	// awaitDeath waits until every process is dead. It is called after the tree was killed and the leader reaped.
	awaitDeath(leader int)
	// outOfMemory reports whether the kernel has killed a process of the tree because memory was short.
	outOfMemory() bool
	// remove releases the resources of the tree. No process may be in it.
	remove()
}

// pollUntil calls done at growing intervals of at most 50 ms, until done returns true or ctx ends.
func pollUntil(ctx context.Context, done func() bool) {
	for pause := backoff.New(500*time.Microsecond, 50*time.Millisecond); !done() && pause.Wait(ctx); {
	}
}

// group is a tree whose processes are found by their process group. The number of the group is the PID of the leader.
type group struct {
	// escaped finds processes of the run that have left the group, by the run's id. It is nil if they can't be found.
	escaped escaped
	id      string
}

// noGroup makes signalRun skip no process group.
const noGroup = 0

// escaped finds processes of runs that have left their process group.
type escaped interface {
	// signalRun sends a signal to the escaped processes of a run. It skips members of one process group (the argument but). Signal 0 sends nothing. signalRun
	// returns all escaped processes of the run; unclear reports whether there may be more.
	signalRun(id string, signal unix.Signal, but int) (found []int, unclear bool)
	// killRun kills the escaped processes of a run and returns when no such process is left.
	killRun(id string)
}

func (group) placeLeader(attr *syscall.SysProcAttr) { attr.Setpgid = true }

func (g group) describe(r *Watched) { r.ID = g.id }

func (group) missingPart() error { return nil }

func (g group) terminate(leader int) {
	_ = unix.Kill(-leader, unix.SIGTERM)
	if g.escaped != nil {
		g.escaped.signalRun(g.id, unix.SIGTERM, leader) // members of the group already got SIGTERM: a second one may kill a program that is cleaning up
	}
}

// kill also reaches processes that are being forked: the kernel delays forks in a group while it delivers a signal to the group.
func (group) kill(leader int) { _ = unix.Kill(-leader, unix.SIGKILL) }

func (g group) membersAlive(leader int) bool {
	return groupLives(leader) || len(g.leftPrograms(leader)) > 0
}

func (g group) leftPrograms(leader int) []string {
	programs := groupPrograms(leader)
	if g.escaped != nil {
		found, _ := g.escaped.signalRun(g.id, 0, noGroup) // an orphan may also be a member of the group; the map has each process once
		maps.Copy(programs, programsOf(found))
	}
	return slices.Sorted(maps.Values(programs))
}

// awaitDeath sends no signal to the group, only polls it: once no member is left, dead or alive, the kernel may reuse the number for another group.
func (g group) awaitDeath(leader int) {
	pollUntil(context.Background(), func() bool { return groupGone(leader) })
	if g.escaped != nil {
		g.escaped.killRun(g.id)
	}
}

func (group) outOfMemory() bool { return false }

func (group) remove() {}

// groupGone reports whether the group has no living member. It reaps dead members that are children of this process, and ignores other dead members.
func groupGone(id int) bool {
	for {
		pid, err := unix.Wait4(-id, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return errors.Is(unix.Kill(-id, 0), unix.ESRCH) || !groupLives(id)
}
