package cronspec

import (
	"math"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	secondsPerDay = 24 * 60 * 60
	// calendarCycle is the number of seconds after which the Gregorian calendar repeats, weekdays included. A day that does not occur within it never
	// does.
	calendarCycle = 146_097 * secondsPerDay
	// lookBack is more than the largest backward step of any zone's clock, which is a little over a day. So no later time was shown longer ago.
	lookBack = 2 * secondsPerDay
)

// A wall is an expression of five or six fields in a zone. Times of the wall clock are in seconds, as if the clock showed UTC.
type wall struct {
	face  *cron.SpecSchedule // matches the clock's face; in UTC, which stands for any zone
	zone  *time.Location
	clock bool // follows the clock; false for a fixed-time job
	index int  // the index of the expression in its list
}

// nextInstant implements [rule].
func (w *wall) nextInstant(after, limit int64) (int64, bool) {
	if w.clock {
		return w.nextShown(after, limit)
	}
	return w.nextReached(after, limit)
}

// nextShown returns the first instant at which the clock of the zone shows a matching time. It looks at one period after the other, because the clock
// may show the same times again in the next.
func (w *wall) nextShown(after, limit int64) (int64, bool) {
	searched, match := int64(0), int64(math.MinInt64) // there is no match in between
	for from := after + 1; from <= limit; {
		p := periodAt(w.zone, from)
		if shown := p.wallClock(from) - 1; shown < searched || shown >= match {
			found, ok := w.nextOnFace(shown, limit)
			if !ok {
				return 0, false
			}
			searched, match = shown, found
		}
		if tick := p.instant(match); tick < p.end {
			return tick, tick <= limit
		}
		from = p.end
	}
	return 0, false
}

// nextReached returns the first instant at which the clock of the zone shows a matching time or a later one, for a match that it had not reached
// before.
func (w *wall) nextReached(after, limit int64) (int64, bool) {
	p, reached := reachedBy(w.zone, after)
	match, ok := w.nextOnFace(reached, limit)
	if !ok {
		return 0, false
	}
	for from := after; from <= limit; {
		if tick := max(p.instant(match), from); tick < p.end {
			return tick, tick <= limit
		}
		from = p.end
		p = periodAt(w.zone, from)
	}
	return 0, false
}

// reachedBy returns the latest time that the clock of a zone has shown up to an instant, and the period of that instant.
func reachedBy(zone *time.Location, instant int64) (p period, reached int64) {
	p, reached = periodAt(zone, instant-lookBack), math.MinInt64
	for p.end <= instant {
		reached = max(reached, p.wallClock(p.end-1))
		p = periodAt(zone, p.end)
	}
	return p, max(reached, p.wallClock(instant))
}

// nextOnFace returns the first matching time of the wall clock after the given one, regardless of zones. SpecSchedule.Next gives up after five years,
// which may be too few for a 29 February, so it is then called again from there.
func (w *wall) nextOnFace(after, limit int64) (int64, bool) {
	for from := time.Unix(after, 0).UTC(); from.Unix() <= limit+secondsPerDay; {
		if match := w.face.Next(from); !match.IsZero() {
			return match.Unix(), true
		}
		from = time.Date(from.Year()+6, time.January, 1, 0, 0, 0, 0, time.UTC).Add(-time.Second)
	}
	return 0, false
}
