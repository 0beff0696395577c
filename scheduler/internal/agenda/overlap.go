package agenda

import (
	"slices"
	"time"
)

// Replacing: a tick that finds all slots held has the oldest run stopped, and contends for its slot until that run is dead. When newer ticks need
// all the slots that will be free, an older one that waits is displaced: it is skipped. Ticks of a backlog do not replace each other, unless the first
// of them has found all slots held for longer than a period.

// Replaces returns whether a claim of the tick has a run stopped: only if this replica could start the tick in the place of that run. It has a place,
// or that run may be the one that takes it.
func (k *Tick) Replaces() bool {
	return k.Rules.Overlap == Replace && k.MayWin() && (k.Placed || k.Job.Running > 0)
}

// Contend has a tick wait until the run that it replaces is dead. One of a backlog waits for the same, but gives way only if that goes on for long.
func (k *Tick) Contend() {
	if k.Claim().Replaces && k.Standing == Fresh {
		k.Standing = Contending
	}
}

// findsStuck returns whether an older tick has found all slots held since before the tick before this one. Those of a backlog go on one after the other if
// their runs are short; else each would wait in vain until its deadline, and so would those behind it, for ever.
func (k *Tick) findsStuck(o *Tick) bool {
	return o.Waits() && o.Standing != Displaced && !o.held.IsZero() && o.held.Before(k.Previous)
}

// displace has ticks that wait for a run to be stopped give way to a new one, where those that are newer need all the slots.
func (a *Agenda) displace(k *Tick, now time.Time) {
	if k.Rules.Overlap != Replace {
		return
	}
	stuck := slices.ContainsFunc(k.ahead(), k.findsStuck)
	needed := k.Rules.PerTick
	for _, o := range slices.Backward(k.ahead()) {
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

// WakeContending asks for the ticks that wait for a run to be stopped, now that a run has ended here.
func (a *Agenda) WakeContending(j *Job, now time.Time) {
	for _, k := range j.Open {
		if (k.Standing == Contending || k.Standing == Displaced) && k.canAsk() {
			a.Ask(k, now, now)
		}
	}
}
