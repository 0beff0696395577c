package agenda

import (
	"slices"
	"time"
)

// Replacing: a tick that finds all slots held stops the oldest run, and waits for the slot of that run. This tick is contending. If newer ticks need
// all the slots, an older waiting tick is displaced, which means that it is skipped. Ticks of a backlog do not replace each other, unless the first
// of them has found all slots held for longer than a period of the schedule.

// Replaces reports whether a claim of the tick should stop a run. The claim should do so only if this replica could then start the tick: either the
// tick already has a place, or the stopped run may free one.
func (k *Tick) Replaces() bool {
	return k.Rules.Overlap == Replace && k.MayWin() && (k.Placed || k.Job.Running > 0)
}

// Contend makes a new tick contending after its claim has stopped a run. A tick of a backlog stays InLine, so it is displaced only if the backlog is
// stuck.
func (k *Tick) Contend() {
	if k.Claim().Replaces && k.Standing == Fresh {
		k.Standing = Contending
	}
}

// findsStuck reports whether the older tick o has found all slots held for longer than a period of the schedule, counted to k. Then the backlog is
// stuck: its runs last so long that waiting ticks would wait until their deadlines.
func (k *Tick) findsStuck(o *Tick) bool {
	return o.Waits() && o.Standing != Displaced && !o.held.IsZero() && o.held.Before(k.Previous)
}

// displaceOlder displaces older waiting ticks of a job if the new tick k and other newer ticks need all the slots.
func (a *Agenda) displaceOlder(k *Tick, now time.Time) {
	if k.Rules.Overlap != Replace {
		return
	}
	stuck := slices.ContainsFunc(k.olderTicks(), k.findsStuck)
	needed := k.Rules.PerTick
	for _, o := range slices.Backward(k.olderTicks()) {
		if o.Standing != Contending && !(stuck && o.Standing == InLine) {
			continue
		}
		if needed += o.Rules.PerTick; needed <= k.Rules.Parallel {
			continue
		}
		o.Standing = Displaced
		if o.canAsk() {
			a.Ask(o, now, now)
		}
	}
}

// WakeContending schedules claims of contending and displaced ticks now. It is called when a run of the job has ended on this replica.
func (a *Agenda) WakeContending(j *Job, now time.Time) {
	for _, k := range j.Open {
		if (k.Standing == Contending || k.Standing == Displaced) && k.canAsk() {
			a.Ask(k, now, now)
		}
	}
}
