package cronspec

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"time"
)

// A period is a stretch of time in which the offset of a zone stays the same. Two consecutive periods may have the same offset.
type period struct {
	offset int64 // seconds east of UTC
	end    int64 // the first Unix second after it; math.MaxInt64 if it never ends
}

// wallClock returns the wall clock at an instant of the period, as the Unix time at which UTC shows the same.
func (p period) wallClock(instant int64) int64 { return instant + p.offset }

// instant returns the instant at which the wall clock shows a time. It is the inverse of wallClock.
func (p period) instant(wall int64) int64 { return wall - p.offset }

// periodAt returns the period that contains an instant, with its end. [time.Time.ZoneBounds] returns the exact end of a period, but may return the
// start of the year, or of the rule in force, instead of the start of the period.
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

// PeriodEnd returns the first instant after another at which a zone may change its offset, or the zero time if it never does.
func PeriodEnd(zone *time.Location, at time.Time) time.Time {
	p := periodAt(zone, at.Unix())
	if p.end == math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(p.end, 0)
}

// zoneKey returns a name for a zone, so that different zones have different names. Zones of the IANA database are known by their names, even if their
// data has no change of the clock, because it begins late. For any other zone with a fixed offset, whose name may be anything, the offset is added.
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
