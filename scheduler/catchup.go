package scheduler

import (
	"fmt"
	"slices"
	"time"
)

// CatchUp says what becomes of ticks whose StartDeadline has passed because no replica, or no server, was there. A replica that stood still was not.
type CatchUp string

// The policies of catching up. What a reload or a schedule that was edited has begun anew has nothing to catch up, nor has a job that is new to the cluster.
const (
	CatchUpNone   CatchUp = "none"   // they are missed. The default
	CatchUpLatest CatchUp = "latest" // the last one is run, unless a later one is due already
	CatchUpAll    CatchUp = "all"    // all are run, oldest first, one after the other; at most the last 1,000
)

func (j *Job) catchUpFault() string {
	switch {
	case j.CatchUp != CatchUpNone && j.CatchUp != CatchUpLatest && j.CatchUp != CatchUpAll:
		return fmt.Sprintf("CatchUp is %q: it must be %q, %q or %q", j.CatchUp, CatchUpNone, CatchUpLatest, CatchUpAll)
	case j.CatchUpWindow < 0:
		return fmt.Sprintf("CatchUpWindow is %v: it must not be negative", j.CatchUpWindow)
	case j.CatchUp != CatchUpNone && j.PerTick > 1:
		return fmt.Sprintf("CatchUp is %q: it must be %q where PerTick is more than 1", j.CatchUp, CatchUpNone)
	}
	return ""
}

// extended is until when a tick may be caught up; newest tells that no later one is due. Every replica reckons the same from the tick alone: else one would
// settle as missed what another still wants to run.
func (j *Job) extended(at, deadline time.Time, newest bool) time.Time {
	if end := at.Add(j.CatchUpWindow); end.After(deadline) && (j.CatchUp == CatchUpAll || j.CatchUp == CatchUpLatest && newest) {
		return end
	}
	return deadline
}

// unseen tells whether, as far as this replica knows, no replica was there to decide a tick: that it has itself not looked in time says no more, as others may
// have been down. A replica that had no slot or no place for the tick has seen it.
func (k *tick) unseen() bool {
	return slices.Contains([]string{reasonDown, reasonRedis, reasonLate, reasonOverload}, k.reason)
}

// lastChance is until when a tick may start: its deadline, or a later one if so far nobody was there to run it.
func (k *tick) lastChance() time.Time {
	if k.trigger == caughtUp || !k.unseen() {
		return k.deadline
	}
	open := k.task.open
	return k.job.extended(k.at, k.deadline, len(open) > 0 && open[len(open)-1] == k)
}

// catchUp has a tick that is past its deadline run in its last chance, whatever it waits for from now on.
func (k *tick) catchUp(now time.Time) {
	if end := k.lastChance(); now.After(k.deadline) && end.After(k.deadline) {
		k.deadline, k.trigger, k.waited = end, caughtUp, true
	}
}

// wasCaughtUp tells whether a tick that was given back, and is opened here past its own deadline, keeps its last chance: it was in it when it was granted, or
// nobody was there since to take it up.
func (k *tick) wasCaughtUp(now time.Time) bool {
	passed := !k.next.IsZero() && !k.next.After(now)
	return now.After(k.deadline) && (k.job.CatchUp == CatchUpAll || k.job.CatchUp == CatchUpLatest && !passed)
}

// passOver takes the last chance from the latest tick of a job, since a later one comes due.
func (a *agenda) passOver(t *task, now time.Time) {
	if t.CatchUp != CatchUpLatest || len(t.open) == 0 {
		return
	}
	k := t.open[len(t.open)-1]
	own := t.deadline(k.at, k.next)
	if !k.lastChance().After(own) {
		return
	}
	k.deadline, k.trigger = own, scheduled
	at := own.Add(t.lag() + time.Millisecond)
	if planned, ok := k.inAsks.when(); ok && planned.Before(at) {
		at = planned
	}
	if !k.asking {
		a.ask(k, at, now)
	}
}
