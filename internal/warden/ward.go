package warden

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Ward is a run that the warden watches. Its methods are safe for concurrent use. All methods except [Ward.Known] and [Ward.Reap] return at once.
type Ward struct {
	warden     *Warden
	number     uint64
	registered receipt

	// The warden's mu guards the following fields.
	run    Run
	leader int // PID; 0 before Started and after Reap
	start  uint64
	told   bool
	late   bool          // a helper has stopped or killed the run
	killed time.Duration // time on CLOCK_BOOTTIME at which a helper killed the run, or 0
	over   bool          // set by Release: no further message is sent
}

// receipt identifies a message that was sent to a helper. known is closed when the helper has acted on it. helper is nil if no helper was running.
type receipt struct {
	helper *helper
	known  <-chan struct{}
}

// postChange changes the state and sends the change to the helper under one lock, so that the helper gets the changes in the order in which they were made.
// If no helper is running, the next one gets the whole state.
func (w *Warden) postChange(change func() message) receipt {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := change()
	if w.helper == nil {
		return receipt{}
	}
	return receipt{w.helper, w.helper.send(m)}
}

// postChange changes the state of a run, and sends the change to the helper, if one is running. It does nothing after Release.
func (w *Ward) postChange(change func() message) receipt {
	w.warden.mu.Lock()
	defer w.warden.mu.Unlock()
	if w.over {
		return receipt{}
	}
	m := change()
	m.Run = w.number
	if w.warden.helper == nil {
		return receipt{}
	}
	return receipt{w.warden.helper, w.warden.helper.send(m)}
}

// Inherit makes the helper remove a cgroup, with all cgroups below it, after this process has exited.
func (w *Warden) Inherit(cgroup string) {
	w.postChange(func() message {
		w.bases = append(w.bases, cgroup)
		return message{Verb: inherit, Cgroup: cgroup}
	})
}

// Watch registers a run. The run must not start before [Ward.Known] has returned nil. Call [Ward.Release] at the end of the run.
func (w *Warden) Watch(r Run) *Ward {
	ward := &Ward{warden: w, run: r}
	ward.registered = w.postChange(func() message {
		w.latest++
		ward.number = w.latest
		w.wards[ward.number] = ward
		return ward.stateMessage()
	})
	return ward
}

// Known waits until the helper has registered the run. If no helper is running, Known waits for the next one. It returns an error when ctx ends or after
// fifteen seconds. Changes that are made while Known waits, such as an extension, also reach the helper.
func (w *Ward) Known(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, watchTime, errors.New("it does not answer"))
	defer cancel()
	if err := w.warden.awaitAck(ctx, w.registered); err != nil {
		return fmt.Errorf("no warden for run %s: %w", w.run.Name, err)
	}
	return nil
}

// awaitAck waits until the helper has acknowledged a message. If the helper dies, awaitAck waits for the next helper.
func (w *Warden) awaitAck(ctx context.Context, r receipt) error {
	if r.helper != nil {
		select {
		case <-r.known:
			return nil
		case <-r.helper.dead:
			// The next helper becomes ready only after it has the state of all runs.
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return w.awaitHelper(ctx, r.helper)
}

// stateMessage returns a message with the whole state of the run. The caller holds the warden's mu.
func (w *Ward) stateMessage() message {
	return message{Verb: watch, Run: w.number, Name: w.run.Name, Job: w.run.Job, ID: w.run.ID, Cgroup: w.run.Cgroup, PID: w.leader, Start: w.start,
		Deadline: w.run.Deadline, Lease: w.run.Lease, Grace: w.run.Grace, Told: w.told}
}

// Started reports the PID of the leader of the run's process group. The leader must not have been waited for yet.
func (w *Ward) Started(leader int) {
	start := processStart(leader)
	w.postChange(func() message {
		w.leader, w.start = leader, start
		return message{Verb: started, PID: leader, Start: start}
	})
}

// Extend moves the deadline. It has no effect if the new deadline is earlier, if the time at which the helper kills the run has passed, or if the run has no
// deadline.
func (w *Ward) Extend(deadline time.Duration) {
	at := bootTime()
	w.postChange(func() message {
		if w.run.Deadline != 0 && at < w.run.killAt() {
			w.run.Deadline = max(w.run.Deadline, deadline)
		}
		return message{Verb: extend, Deadline: deadline, At: at}
	})
}

// Told records that the run got SIGTERM, so that the helper does not send a second one.
func (w *Ward) Told() {
	w.postChange(func() message {
		w.told = true
		return message{Verb: told}
	})
}

// Reap makes the helper forget the leader's PID. Call it before the leader is waited for, because the PID may be reused after that. When Reap returns, no
// helper signals the leader or its group any more. The helper still watches the other processes of the run.
//
// late reports whether a helper has stopped or killed the run because its deadline was near. ago is the time since a helper killed the run, or 0; this
// process may have been suspended since then. late and ago include every action of a helper up to the return of Reap.
func (w *Ward) Reap() (late bool, ago time.Duration) {
	w.forgetLeader()
	w.warden.mu.Lock()
	defer w.warden.mu.Unlock()
	if w.killed != 0 {
		ago = bootTime() - w.killed
	}
	return w.late, ago
}

func (w *Ward) forgetLeader() {
	heard := w.postChange(func() message {
		w.leader, w.start = 0, 0
		return message{Verb: reap}
	})
	if heard.helper == nil {
		return // the next helper does not get the PID
	}
	select {
	case <-heard.known:
		return
	case <-heard.helper.dead:
		return
	case <-time.After(patience):
	}
	heard.helper.kill() // the helper may be stopped or hang; after SIGKILL it sends no signals any more
	select {
	case <-heard.helper.dead:
	case <-time.After(dying): // the helper hangs in the kernel and will execute nothing any more
	}
}

// Release ends the watch. It may be called more than once.
func (w *Ward) Release() {
	w.postChange(func() message {
		w.over = true
		delete(w.warden.wards, w.number)
		return message{Verb: release}
	})
}
