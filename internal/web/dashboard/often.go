package dashboard

import (
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
)

// weeklyLoads caches, by schedule, whether a job ticks often. Many jobs have the same schedule.
type weeklyLoads map[string]bool

func (w weeklyLoads) isOften(j cluster.Scheduled, first time.Time) bool {
	often, known := w[j.Spec.Key()]
	if !known {
		often = ticksOften(j, first)
		w[j.Spec.Key()] = often
	}
	return often
}

// ticksOften reports whether a job has more than mostAnHour ticks within some hour of the week that begins at first. It stops at the first such hour.
func ticksOften(j cluster.Scheduled, first time.Time) bool {
	var last [mostAnHour]time.Time // ring buffer of the last ticks
	end := first.AddDate(0, 0, daysOfAWeek)
	at := first.Add(-time.Nanosecond)
	for n := 0; ; n++ {
		at = j.Spec.Next(at)
		if at.IsZero() || !at.Before(end) {
			return false
		}
		if n >= mostAnHour && at.Sub(last[n%mostAnHour]) < time.Hour {
			return true
		}
		last[n%mostAnHour] = at
	}
}
