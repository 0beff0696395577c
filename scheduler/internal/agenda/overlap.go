package agenda

import (
	"slices"
	"time"
)

// Replacing: a tick that finds all slots held stops the oldest run, and contends for its slot until that run is dead. When newer ticks need all the
// slots that will be free, an older tick that waits is displaced: it is skipped. Ticks of a backlog do not replace each other, unless the first of
// them has found all slots held for longer than a period.

// Replaces reports whether a claim of the tick stops a run. It does only if this replica could start the tick in place of that run: the tick has a
// place, or the run may be the one that takes it.
func (k *Tick) Replaces() bool {
	return k.Rules.Overlap == Replace && k.MayWin() && (k.Placed || k.Job.Running > 0)
}

// Contend makes a tick wait until the run that it replaces is dead. A tick of a backlog waits for the same, but gives way only if that goes on for
// long.
func (k *Tick) Contend() {
	if k.Claim().Replaces && k.Standing == Fresh {
		k.Standing = Contending
	}
}

// findsStuck reports whether an older tick has found all slots held since before the tick before this one. Ticks of a backlog run one after the other
// if their runs are short. Otherwise each of them, and the ones behind it, would wait in vain until its deadline.
func (k *Tick) findsStuck(o *Tick) bool {
	return o.Waits() && o.Standing != Displaced && !o.held.IsZero() && o.held.Before(k.Previous)
}

// displaceOlder displaces ticks that wait for a run to be stopped, if newer ticks need all the slots, because of a new tick.
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

// WakeContending claims the ticks that wait for a run to be stopped, because a run has ended here.
func (a *Agenda) WakeContending(j *Job, now time.Time) {
	for _, k := range j.Open {
		if (k.Standing == Contending || k.Standing == Displaced) && k.canAsk() {
			a.Ask(k, now, now)
		}
	}
}
