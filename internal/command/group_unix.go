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

// group is a tree that is held by nothing but its process group, whose number is the leader's.
type group struct {
	// escaped finds what escaped from the group and can be told to be this run's by its id; nil if there is no way.
	escaped escaped
	id      string
}

// noGroup is the number of no process group.
const noGroup = 0

// escaped are the processes of runs that left their group.
type escaped interface {
	// signal signals those of one run that are not in a process group, or lists them only if the signal is 0. unclear reports whether there might be more
	// of them.
	signal(id string, signal unix.Signal, but int) (found []int, unclear bool)
	// sweep kills those of one run until none is left.
	sweep(id string)
}

func (group) place(attr *syscall.SysProcAttr) { attr.Setpgid = true }

func (g group) describe(r *Watched) { r.ID = g.id }

func (group) missing() error { return nil }

func (g group) terminate(leader int) {
	_ = unix.Kill(-leader, unix.SIGTERM)
	if g.escaped != nil {
		g.escaped.signal(g.id, unix.SIGTERM, leader) // the group has its SIGTERM: a second one may end a program that is cleaning up
	}
}

// kill can't miss a process that is being forked: the kernel lets no fork of a group through between a
// signal to the group and its delivery.
func (group) kill(leader int) { _ = unix.Kill(-leader, unix.SIGKILL) }

func (g group) alive(leader int) bool { return groupLives(leader) || len(g.left(leader)) > 0 }

func (g group) left(leader int) []string {
	programs := groupPrograms(leader)
	if g.escaped != nil {
		found, _ := g.escaped.signal(g.id, 0, noGroup) // orphans, which may be of the group, too
		maps.Copy(programs, programsOf(found))
	}
	return slices.Sorted(maps.Values(programs))
}

// settle needs no care about the group's number: the kernel keeps it from being used again as long as one
// member is left, dead or alive, and nothing is signalled here.
func (g group) settle(leader int) {
	poll(context.Background(), func() bool { return groupGone(leader) })
	if g.escaped != nil {
		g.escaped.sweep(g.id)
	}
}

func (group) starved() bool { return false }

func (group) remove() {}

// groupGone returns whether the group with this number has no living member. Dead ones that are ours are
// reaped; one that waits for a parent elsewhere to be reaped does not count.
func groupGone(id int) bool {
	for {
		pid, err := unix.Wait4(-id, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return errors.Is(unix.Kill(-id, 0), unix.ESRCH) || !groupLives(id)
}
