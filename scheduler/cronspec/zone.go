package cronspec

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"time"
)

// A period is an interval in which the offset of a zone does not change. Consecutive periods may have the same offset.
type period struct {
	offset int64 // seconds east of UTC
	end    int64 // the first Unix second after the period; math.MaxInt64 if it never ends
}

// wallClock returns the local time at an instant of the period, as the Unix time of this time in UTC.
func (p period) wallClock(instant int64) int64 { return instant + p.offset }

// instant returns the instant of a local time in the period. It is the inverse of wallClock.
func (p period) instant(wall int64) int64 { return wall - p.offset }

// periodAt returns the period that contains an instant. A period has no start, because the start that [time.Time.ZoneBounds] returns may be the start
// of the year or of the current rule instead.
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

// zoneKey returns a text that identifies a zone. For a zone with offset changes, or with a name from the IANA database, it is the name. For any other
// zone it is the name and the fixed offset, because such a zone may have any name.
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

// zoneTag returns 8 hexadecimal digits that identify a zone.
func zoneTag(zone *time.Location) string {
	sum := sha256.Sum256([]byte(zoneKey(zone)))
	return hex.EncodeToString(sum[:4])
}
