package scheduler

import (
	"errors"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
)

// Why a run's context ends when somebody else wants it to.
var (
	ErrCanceled = errors.New("the run was canceled")
	ErrReplaced = errors.New("a newer tick replaces the run")
)

// whyStopped is the cause that a term's holder was given; nil if there is none.
func whyStopped(term *election.Term) error {
	if term == nil {
		return nil
	}
	switch term.StopReason() {
	case "":
		return nil
	case election.StopReplaced:
		return ErrReplaced
	}
	return ErrCanceled
}

// stopping is closed when the holder of a term is asked to stop.
func stopping(term *election.Term) <-chan struct{} {
	if term == nil {
		return nil
	}
	return term.Stopping()
}

// contest has a claim of a job that replaces do so, if this replica could start the tick in the place of the run that is stopped: it has a place, or
// that run may be what takes it. What newer ticks have displaced is skipped, and leaves a slot that is free to them.
func (k *tick) contest(c *election.Claim) {
	k.replaces = k.job.Overlap == OverlapReplace && k.mayWin() && (k.placed || k.task.running > 0)
	switch c.Replace = k.replaces; {
	case k.displaced:
		c.Abstain, c.IfHeld = true, string(Skipped)+" overlap"
		c.IfLate = c.IfHeld
	case k.job.Overlap == OverlapReplace:
		c.IfHeld = ""
	}
}

// contend has a tick wait until the run that it replaces is dead. One of a backlog waits for the same, but gives way only if that goes on for long.
func (k *tick) contend() {
	if k.replaces {
		k.contends = k.contends || !k.waited
		k.waited = true
	}
}

// findsStuck tells whether an older tick has found all slots held since before the tick before this one. Those of a backlog go on one after the other if
// their runs are short; else each would wait in vain until its deadline, and so would those behind it, for ever.
func (k *tick) findsStuck(o *tick) bool {
	return o.waited && !o.displaced && !o.held.IsZero() && o.held.Before(k.previous)
}

// displace has ticks that wait for a run to be stopped give way to a new one, where those that are newer need all the slots.
func (a *agenda) displace(k *tick, now time.Time) {
	if k.job.Overlap != OverlapReplace {
		return
	}
	stuck := slices.ContainsFunc(k.ahead(), k.findsStuck)
	needed := k.job.PerTick
	for _, o := range slices.Backward(k.ahead()) {
		if o.displaced || !o.contends && !(stuck && o.waited) {
			continue
		}
		if needed += o.job.PerTick; needed <= k.job.Parallel {
			continue
		}
		o.displaced = true
		if !o.asking {
			a.ask(o, now, now)
		}
	}
}

// hurry asks for what waits for a run that was stopped, now that one is over here.
func (a *agenda) hurry(t *task, now time.Time) {
	for _, k := range t.open {
		if k.contends && !k.asking {
			a.ask(k, now, now)
		}
	}
}
