//go:build linux || darwin

package process

import (
	"context"
	"time"
)

// leftGrace is the time between SIGTERM and SIGKILL for processes that a command left behind when it exited by itself. It is long enough to remove a lock
// file, and short because the run keeps its slot during this time.
const leftGrace = 2 * time.Second

// signalGrace bounds the wait for the other processes of a command that exited and got a signal, passed on or from the terminal: the same signal may be about to
// end them. Processes that exit later count as left behind.
const signalGrace = 500 * time.Millisecond

// awaitMembers waits until no process of the command is alive, the context kill ends, or the time within is over. The dead leader does not count.
func awaitMembers(kill context.Context, t tree, leader int, within time.Duration) {
	limit, cancel := context.WithTimeout(kill, within)
	defer cancel()
	pollUntil(limit, func() bool { return !t.membersAlive(leader) })
}

// stopLeft sends SIGTERM to the processes that a command left behind, and returns the names of their programs. It waits until these processes are dead or
// their time is up. If there are none, it returns at once.
func (h *Host) stopLeft(kill context.Context, s *Spec, t tree, leader int, ward Ward) []string {
	left := t.leftPrograms(leader)
	if len(left) == 0 || kill.Err() != nil {
		return nil
	}
	h.log.Warn("run left processes behind; stopping them", "job", s.Job, "run_id", s.Name, "processes", len(left), "programs", ListPrograms(left))
	t.terminate(leader)
	ward.Told()
	awaitMembers(kill, t, leader, min(h.leftGrace, s.KillGrace))
	return left
}
