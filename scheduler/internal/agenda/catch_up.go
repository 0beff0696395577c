package agenda

import (
	"slices"
	"time"
)

// Catching up: a tick that no replica could decide before its deadline may still start until the end of its job's window, oldest first. Under
// "latest" only the newest tick may, and it loses that chance when a later one comes due.

// Extended returns the instant until which a tick may be caught up. newest is true if no later tick is due. Every replica computes the same instant
// from the tick alone. Otherwise one replica could settle as missed a tick that another still wants to run.
func (r *Rules) Extended(at, deadline time.Time, newest bool) time.Time {
	if end := at.Add(r.CatchUpWindow); end.After(deadline) && (r.CatchUp == CatchUpAll || r.CatchUp == CatchUpLatest && newest) {
		return end
	}
	return deadline
}

// isUnseen reports whether, as far as this replica knows, no replica was there to decide a tick. That this replica was late is no evidence, since
// others may have been down. A replica that had no slot or no place for the tick has seen it.
func (k *Tick) isUnseen() bool {
	return slices.Contains([]Reason{Down, Redis, Late, Overload}, k.Cause.Reason)
}

// LastChance returns the instant until which a tick may start: its deadline, or the end of its catch-up window if no replica was there to run it so
// far.
func (k *Tick) LastChance() time.Time {
	if k.Trigger == CaughtUp || !k.isUnseen() {
		return k.Deadline
	}
	open := k.Job.Open
	return k.Rules.Extended(k.At, k.Deadline, len(open) > 0 && open[len(open)-1] == k)
}

// CatchUp lets a tick that is past its deadline run until its last chance, whatever it waits for from now on.
func (k *Tick) CatchUp(now time.Time) {
	if end := k.LastChance(); now.After(k.Deadline) && end.After(k.Deadline) {
		k.Deadline, k.Trigger = end, CaughtUp
		k.waitInLine()
	}
}

// WasCaughtUp reports whether a tick that was given back, and is opened here past its deadline, keeps its last chance: it was being caught up when it
// was granted, or no replica was there since to take it up.
func (k *Tick) WasCaughtUp(now time.Time) bool {
	passed := !k.Next.IsZero() && !k.Next.After(now)
	return now.After(k.Deadline) && (k.Rules.CatchUp == CatchUpAll || k.Rules.CatchUp == CatchUpLatest && !passed)
}

// passOver takes the last chance from the latest tick of a job, because a later tick comes due.
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
