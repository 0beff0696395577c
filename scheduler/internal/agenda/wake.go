package agenda

import "time"

// Wake schedules claims of the oldest parked ticks of a job, as many as may run on this replica. free is the number of free places on this replica.
func (a *Agenda) Wake(j *Job, free int, now time.Time) {
	if len(j.Open) > 0 && j.Open[0].isIn(parked) && j.Open[0].Late(now) {
		a.Ask(j.Open[0], now, now)
	}
	places := j.PerReplica - j.Running
	for _, k := range j.Open {
		switch {
		case !k.isIn(parked) || k.Late(now) || k.MustWait(now):
			continue
		case !k.MayWin(): // its claim abstains, and needs no place
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

// WakeStarved schedules claims of the oldest ticks of all jobs that were parked because this replica was full, places is the number of free places.
func (a *Agenda) WakeStarved(places int, now time.Time) {
	for range places {
		k, ok := a.starved.Pop()
		if !ok {
			return
		}
		a.Ask(k, k.Due, now)
	}
}

// WakeWaiting schedules claims of the ticks that wait for a slot of a job, after a slot became free. Each claim is delayed by Turn, so that the
// replicas claim one after the other. The delays count from the instant from.
func (a *Agenda) WakeWaiting(j *Job, from, now time.Time) {
	for _, k := range j.Open {
		if k.Waits() && k.canAsk() && !k.isIn(parked) && k.MayWin() {
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
