package agenda

import (
	"slices"
	"time"
)

// Catching up: a tick that no replica decided before its deadline may still start until the end of its catch-up window. The ticks of a job start
// oldest first. With the policy "latest" only the newest tick may still start, and only until a later tick is due.

// Extended returns the instant until which a tick may start if it is caught up. newest is true if no later tick is due. The result depends only on
// the tick, so that every replica computes the same instant. Otherwise one replica could settle a tick as missed that another replica still wants to
// run.
func (r *Rules) Extended(at, deadline time.Time, newest bool) time.Time {
	if end := at.Add(r.CatchUpWindow); end.After(deadline) && (r.CatchUp == CatchUpAll || r.CatchUp == CatchUpLatest && newest) {
		return end
	}
	return deadline
}

// isUnseen reports whether, as far as this replica knows, no replica was able to decide a tick. It returns true if this replica was late or
// overloaded, because all other replicas may have been down. It returns false if a replica found no free slot or place for the tick.
func (k *Tick) isUnseen() bool {
	return slices.Contains([]Reason{Down, Redis, Late, Overload}, k.Cause.Reason)
}

// LastChance returns the latest start of a tick: its deadline, or the end of its catch-up window if no replica was able to run it.
func (k *Tick) LastChance() time.Time {
	if k.Trigger == CaughtUp || !k.isUnseen() {
		return k.Deadline
	}
	open := k.Job.Open
	return k.Rules.Extended(k.At, k.Deadline, len(open) > 0 && open[len(open)-1] == k)
}

// CatchUp moves the deadline of a late tick to its last chance, if it is to be caught up. From then on, the reason for which the tick waits no longer
// matters.
func (k *Tick) CatchUp(now time.Time) {
	if end := k.LastChance(); now.After(k.Deadline) && end.After(k.Deadline) {
		k.Deadline, k.Trigger = end, CaughtUp
		k.waitInLine()
	}
}

// WasCaughtUp reports whether a tick that was given back, and is reopened after its deadline, may still be caught up. Either it was being caught up
// when it was granted, or no replica was up to reopen it earlier.
func (k *Tick) WasCaughtUp(now time.Time) bool {
	passed := !k.Next.IsZero() && !k.Next.After(now)
	return now.After(k.Deadline) && (k.Rules.CatchUp == CatchUpAll || k.Rules.CatchUp == CatchUpLatest && !passed)
}

// passOver ends the catch-up of the newest open tick of a job with the policy "latest", because a later tick is due.
func (a *Agenda) passOver(j *Job, now time.Time) {
	if j.CatchUp != CatchUpLatest || len(j.Open) == 0 {
		return
	}
	k := j.Open[len(j.Open)-1]
	own := j.Deadline(k.At, k.Next)
	if !k.LastChance().After(own) {
		return
	}
	k.Deadline, k.Trigger = own, Scheduled
	at := own.Add(j.settleDelay() + time.Millisecond)
	if planned, ok := k.inAsks.When(); ok && planned.Before(at) {
		at = planned
	}
	if k.canAsk() {
		a.Ask(k, at, now)
	}
}
