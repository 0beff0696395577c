package warden

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Ward is a run that is watched over. Its methods may be called from any goroutine, and but for [Ward.Known] and [Ward.Reap]
// they return at once.
type Ward struct {
	warden     *Warden
	number     uint64
	registered receipt

	// The following fields are guarded by the warden's mu.
	run    Run
	leader int // 0 before it is known, and once it is reaped
	start  uint64
	told   bool
	late   bool          // a helper has stopped or killed it
	killed time.Duration // when a helper has killed it, by CLOCK_BOOTTIME; 0 for never
	over   bool          // released: nothing is sent any more
}

// receipt is for a message: known is closed when it was acted on, if there was a helper.
type receipt struct {
	helper *helper
	known  <-chan struct{}
}

// post changes the state, and sends the change to the helper if there is one.
func (w *Warden) post(change func() message) receipt {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := change()
	if w.helper == nil {
		return receipt{}
	}
	return receipt{w.helper, w.helper.send(m)}
}

// post does so for a run, unless it is over.
func (w *Ward) post(change func() message) receipt {
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

// Inherit has a cgroup removed, with all below it, once this process is gone.
func (w *Warden) Inherit(cgroup string) {
	w.post(func() message {
		w.bases = append(w.bases, cgroup)
		return message{Verb: inherit, Cgroup: cgroup}
	})
}

// Watch has a run watched, which may start when [Ward.Known] says so. [Ward.Release] must follow.
func (w *Warden) Watch(r Run) *Ward {
	ward := &Ward{warden: w, run: r}
	ward.registered = w.post(func() message {
		w.latest++
		ward.number = w.latest
		w.wards[ward.number] = ward
		return ward.known()
	})
	return ward
}

// Known returns when the helper knows of the run; only then the run may start. While there is no helper it waits, until ctx ends or some seconds have
// passed. The helper also learns of changes to the run in the meantime, such as an extension.
func (w *Ward) Known(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, watchTime, errors.New("it does not answer"))
	defer cancel()
	if err := w.warden.settled(ctx, w.registered); err != nil {
		return fmt.Errorf("no warden for run %s: %w", w.run.Name, err)
	}
	return nil
}

// settled waits until the helper, or its successor, has acknowledged a post.
func (w *Warden) settled(ctx context.Context, r receipt) error {
	if r.helper != nil {
		select {
		case <-r.known:
			return nil
		case <-r.helper.dead:
			// Its successor is told of all runs before it counts as ready.
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return w.await(ctx, r.helper)
}

// known is all that a helper has to know. The warden's mu is held.
func (w *Ward) known() message {
	return message{Verb: watch, Run: w.number, Name: w.run.Name, Job: w.run.Job, ID: w.run.ID, Cgroup: w.run.Cgroup, PID: w.leader, Start: w.start,
		Deadline: w.run.Deadline, Lease: w.run.Lease, Grace: w.run.Grace, Told: w.told}
}

// Started reports the leader of the run's process group, which must not have been waited for.
func (w *Ward) Started(leader int) {
	start := birth(leader)
	w.post(func() message {
		w.leader, w.start = leader, start
		return message{Verb: started, PID: leader, Start: start}
	})
}

// Extend moves the deadline. An extension that comes when the run should have been killed already, or that is for less, has no
// effect; nor has one for a run without a deadline.
func (w *Ward) Extend(deadline time.Duration) {
	at := bootTime()
	w.post(func() message {
		if w.run.Deadline != 0 && at < w.run.killAt() {
			w.run.Deadline = max(w.run.Deadline, deadline)
		}
		return message{Verb: extend, Deadline: deadline, At: at}
	})
}

// Told says that the run has got SIGTERM, so that it does not get another one from the helper.
func (w *Ward) Told() {
	w.post(func() message {
		w.told = true
		return message{Verb: told}
	})
}

// Reap is called before the leader of the run's group is waited for, after which its number may be given to a stranger. When it returns, no helper
// signals that number or group any more. The helper still watches the run's other processes.
//
// late is whether a helper has stopped or killed the run, because its deadline was near and no extension came. ago is the time since a helper has killed
// it, which this process may have slept through; 0 if none has. A helper's action is known here before Reap returns.
func (w *Ward) Reap() (late bool, ago time.Duration) {
	w.giveUp()
	w.warden.mu.Lock()
	defer w.warden.mu.Unlock()
	if w.killed != 0 {
		ago = bootTime() - w.killed
	}
	return w.late, ago
}

// giveUp has the leader's number given up.
func (w *Ward) giveUp() {
	heard := w.post(func() message {
		w.leader, w.start = 0, 0
		return message{Verb: reap}
	})
	if heard.helper == nil {
		return // there was none, and the next one is not told
	}
	select {
	case <-heard.known:
		return
	case <-heard.helper.dead:
		return
	case <-time.After(patience):
	}
	heard.helper.kill() // a stopped or hanging one never gets to signal anything any more
	select {
	case <-heard.helper.dead:
	case <-time.After(dying): // it hangs in the kernel, from where it does not return
	}
}

// Release ends the watch. It may be called more than once.
func (w *Ward) Release() {
	w.post(func() message {
		w.over = true
		delete(w.warden.wards, w.number)
		return message{Verb: release}
	})
}
