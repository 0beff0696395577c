package dashboard

import (
	"time"

	"github.com/cronclave/cronclave/internal/operator"
)

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
