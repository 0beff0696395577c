package agenda

import "time"

// Wake asks for the oldest ticks of a job that were put aside, as many as may run here; free is how many more of any job.
func (a *Agenda) Wake(j *Job, free int, now time.Time) {
	if len(j.Open) > 0 && j.Open[0].in(parked) && j.Open[0].Late(now) {
		a.Ask(j.Open[0], now, now)
	}
	places := j.PerReplica - j.Running
	for _, k := range j.Open {
		switch {
		case !k.in(parked) || k.Late(now) || k.MustWait(now):
			continue
		case !k.MayWin(): // it needs no place
			a.Ask(k, k.Due, now)
			continue
		case places <= 0:
			continue
		case free > 0:
			a.Ask(k, k.Due, now)
		default:
			a.starved.Set(&k.inStarved, k.At)
		}
		places, free = places-1, free-1
	}
}

// WakeStarved does the same for the oldest ticks of any job that found the replica full.
func (a *Agenda) WakeStarved(places int, now time.Time) {
	for range places {
		k, ok := a.starved.Pop()
		if !ok {
			return
		}
		a.Ask(k, k.Due, now)
	}
}

// WakeWaiting asks for the ticks of a job that wait for a slot, since one is free: each replica in its turn, from an instant on.
func (a *Agenda) WakeWaiting(j *Job, from, now time.Time) {
	for _, k := range j.Open {
		if k.Waits() && k.canAsk() && !k.in(parked) && k.MayWin() {
			a.Ask(k, from.Add(a.Turn(j, k.At)), now)
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
