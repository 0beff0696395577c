package dashboard

import (
	"time"

	"github.com/cronclave/cronclave/internal/operator"
)

// weeklyLoads remembers of schedules whether they tick often: many jobs have the same.
type weeklyLoads map[string]bool

func (w weeklyLoads) often(j operator.Scheduled, first time.Time) bool {
	often, known := w[j.Spec.Key()]
	if !known {
		often = ticksOften(j, first)
		w[j.Spec.Key()] = often
	}
	return often
}

// ticksOften returns whether a job has more than mostAnHour ticks within an hour of the week that begins at first, whichever hour that is. It reads no more
// ticks than it needs: of a job that does not tick often, those of a week are few.
func ticksOften(j operator.Scheduled, first time.Time) bool {
	var last [mostAnHour]time.Time // a ring
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
