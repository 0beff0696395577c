package cronspec

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"time"

	"github.com/robfig/cron/v3"
)

// A period is an interval in which the offset of a zone does not change. Consecutive periods may have the same offset.
type period struct {
	offset int64 // seconds east of UTC
	end    int64 // the first Unix second after the period; math.MaxInt64 if it never ends
}

// wallClock returns the local time at an instant of the period, in Unix seconds as if the time were in UTC.
func (p period) wallClock(instant int64) int64 { return instant + p.offset }

// instant returns the instant of a local time in the period. It is the inverse of wallClock.
func (p period) instant(wall int64) int64 { return wall - p.offset }

// periodAt returns the period that contains an instant. It does not return the start of the period, because [time.Time.ZoneBounds] may return the
// start of the year or of the current rule instead.
func periodAt(zone *time.Location, instant int64) period {
	t := time.Unix(instant, 0).In(zone)
	_, offset := t.Zone()
	p := period{offset: int64(offset), end: math.MaxInt64}
	if _, end := t.ZoneBounds(); !end.IsZero() {
		p.end = end.Unix()
	}
	if p.end <= instant {
		// Beyond the last transition in the data, ZoneBounds returns the end of the 365th day as the end of a leap year. On the last day of a leap
		// year, that end is in the past.
		p.end = (instant/secondsPerDay + 1) * secondsPerDay
	}
	return p
}

// PeriodEnd returns the next instant, after a given one, at which the offset of a zone may change. It returns the zero time if the offset never
// changes again.
func PeriodEnd(zone *time.Location, at time.Time) time.Time {
	p := periodAt(zone, at.Unix())
	if p.end == math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(p.end, 0)
}

// zoneKey returns a text that identifies a zone. If the zone has offset changes, or a name from the IANA database, the text is the name. Any other
// zone has a fixed offset and may have any name, so its text also has the offset.
func zoneKey(zone *time.Location) string {
	if zone == time.UTC {
		return "UTC"
	}
	t := time.Unix(0, 0).In(zone)
	if start, end := t.ZoneBounds(); !start.IsZero() || !end.IsZero() {
		return zone.String()
	}
	if known, err := LoadLocation(zone.String()); err == nil && known != time.UTC {
		return zone.String()
	}
	return zone.String() + t.Format("-07:00:00")
}

func zoneTag(zone *time.Location) string {
	sum := sha256.Sum256([]byte(zoneKey(zone)))
	return hex.EncodeToString(sum[:4])
}

const (
	secondsPerDay = 24 * 60 * 60
	// calendarCycle is the number of seconds after which the Gregorian calendar repeats, including the weekdays. A kind of day that does not occur
	// within a cycle never occurs.
	calendarCycle = 146_097 * secondsPerDay
	// lookBack is more than the largest backward step of any zone's clock, which is a little over a day. So the latest local time that a clock has shown
	// was shown within the last lookBack seconds.
	lookBack = 2 * secondsPerDay
)

// A wall is an expression with five or six fields in a zone. Local times are represented as Unix seconds, as if they were times in UTC.
type wall struct {
	face  *cron.SpecSchedule // matches local times, with UTC as their zone
	zone  *time.Location
	clock bool // the expression follows the clock; false for a fixed-time expression
	index int  // the index of the expression in its list
}

func (w *wall) nextInstant(after, limit int64) (int64, bool) {
	if w.clock {
		return w.nextShown(after, limit)
	}
	return w.nextReached(after, limit)
}

// nextShown returns the first instant after the given instant at which the zone's clock shows a matching time. It searches each period separately,
// because after a change of the offset the clock may show times again.
func (w *wall) nextShown(after, limit int64) (int64, bool) {
	searched, match := int64(0), int64(math.MinInt64) // no time between searched and match is a match
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

// nextReached returns the first instant after the given instant at which the zone's clock reaches or skips a matching time that it had never reached
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

// reachedBy returns the latest local time that a zone's clock has shown up to an instant, and the period that contains the instant.
func reachedBy(zone *time.Location, instant int64) (p period, reached int64) {
	p, reached = periodAt(zone, instant-lookBack), math.MinInt64
	for p.end <= instant {
		reached = max(reached, p.wallClock(p.end-1))
		p = periodAt(zone, p.end)
	}
	return p, max(reached, p.wallClock(instant))
}

// nextOnFace returns the first matching local time after the given time. SpecSchedule.Next gives up after five years, which may not be enough for 29
// February, so nextOnFace then calls it again with a later start.
func (w *wall) nextOnFace(after, limit int64) (int64, bool) {
	for from := time.Unix(after, 0).UTC(); from.Unix() <= limit+secondsPerDay; {
		if match := w.face.Next(from); !match.IsZero() {
			return match.Unix(), true
		}
		from = time.Date(from.Year()+6, time.January, 1, 0, 0, 0, 0, time.UTC).Add(-time.Second)
	}
	return 0, false
}
