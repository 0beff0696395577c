//go:build linux || darwin

package command

import (
	"context"
	"time"
)

// leftGrace is the time that processes have between SIGTERM and SIGKILL which a command left behind when it ended by itself. The slot of the run is held
// meanwhile. It is enough to remove a lock file, and no more.
const leftGrace = 2 * time.Second

// signalGrace is the time that the other processes of a command have to end by a signal that was passed on to all of them, before they count as left behind.
const signalGrace = 500 * time.Millisecond

// awaitSignaled waits until the processes of a command have ended by a signal that has ended the command, for at most signalGrace.
func awaitSignaled(kill context.Context, t tree, leader int) {
	grace, cancel := context.WithTimeout(kill, signalGrace)
	defer cancel()
	poll(grace, func() bool { return !t.alive(leader) })
}

// stopLeft stops the processes that a command left behind, and returns their programs. It returns when they are dead, or are to be killed. If there are none
// it waits for nothing.
func (h *Host) stopLeft(kill context.Context, s *Spec, t tree, leader int, ward Ward) []string {
	left := t.left(leader)
	if len(left) == 0 || kill.Err() != nil {
		return nil
	}
	h.log.Warn("run left processes behind; stopping them", "job", s.Job, "run_id", s.Name, "processes", len(left), "programs", ListPrograms(left))
	t.terminate(leader)
	ward.Told()
	grace, cancel := context.WithTimeout(kill, min(h.leftGrace, s.KillGrace))
	defer cancel()
	poll(grace, func() bool { return !t.alive(leader) })
	return left
}
