package cronspec

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"time"
)

// period is a stretch of time in which a zone's offset stays the same. Two
// periods that follow each other may have the same offset.
type period struct {
	offset int64 // seconds east of UTC
	end    int64 // the first Unix second after it; math.MaxInt64 if it never ends
}

// wallClock returns the wall clock that the period shows at an instant, as the
// Unix time at which UTC shows the same.
func (p period) wallClock(instant int64) int64 { return instant + p.offset }

// instant is the inverse of wallClock.
func (p period) instant(wall int64) int64 { return wall - p.offset }

// periodAt returns the period that contains an instant, of which only the end is
// set: time.Time.ZoneBounds is exact about the end of a period, but its start may
// be that of the year, or of the rule in force, rather than of the period.
func periodAt(zone *time.Location, instant int64) period {
	t := time.Unix(instant, 0).In(zone)
	_, offset := t.Zone()
	p := period{offset: int64(offset), end: math.MaxInt64}
	if _, end := t.ZoneBounds(); !end.IsZero() {
		p.end = end.Unix()
	}
	if p.end <= instant {
		// Beyond the last transition in the data ZoneBounds returns the 365th day's
		// end as the end of a leap year, so on its last day the end lies in the
		// past.
		p.end = (instant/secondsPerDay + 1) * secondsPerDay
	}
	return p
}

// PeriodEnd returns the first instant after another at which a zone may change its
// offset; the zero time if it never does.
func PeriodEnd(zone *time.Location, at time.Time) time.Time {
	p := periodAt(zone, at.Unix())
	if p.end == math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(p.end, 0)
}

// zoneKey names a zone so that different zones have different names. Those of the
// IANA database are known by name, whatever data they come from: data that begin
// late have zones without a change of the clock. Another zone with a fixed offset
// may have any name.
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

// zoneTag returns 8 hexadecimal digits for a zone.
func zoneTag(zone *time.Location) string {
	sum := sha256.Sum256([]byte(zoneKey(zone)))
	return hex.EncodeToString(sum[:4])
}
