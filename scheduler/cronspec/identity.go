package cronspec

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"time"
)

// The identity of a tick is equal on every replica, even while replicas have different zone data.
//
// A schedule of fixed-time expressions alone, in a zone other than UTC, has nominal ticks. The identity of a nominal tick is the local time that its
// expression names; its instant is only the time at which it is due. All other schedules identify ticks by their instants: schedules that follow the
// clock, schedules with "@every", schedules in UTC, and lists with both kinds, because their local times and their instants have no common order.

// aheadOfAll is the greatest offset of any zone since 1900, or more. The identity of a nominal tick is its local time, as if it were UTC, less that
// offset. So it is never ahead of the instant, by whatever zone data, and a ledger that is ahead of the server's clock always shows a clock that was
// wrong.
const aheadOfAll = 14 * 60 * 60 // seconds

// Nominal reports whether the ticks of the schedule are identified by their local times.
func (s *Schedule) Nominal() bool { return s.zone != nil }

// Zone returns the zone of a schedule whose ticks are nominal; nil for others.
func (s *Schedule) Zone() *time.Location { return s.zone }

// nominalZone returns the zone of rules that are all fixed-time expressions; nil if there are others.
func nominalZone(rules []rule, zone *time.Location) *time.Location {
	if zone == time.UTC || slices.ContainsFunc(rules, func(r rule) bool { w, ok := r.(*wall); return !ok || w.clock }) {
		return nil
	}
	return zone
}

// Mixed reports whether a list has fixed-time expressions beside others, in another zone than UTC. Its ticks are identified by their instants,
// so they may run twice while replicas have different data of the zone.
func (s *Schedule) Mixed() bool {
	fixed := slices.ContainsFunc(s.rules, func(r rule) bool { w, ok := r.(*wall); return ok && !w.clock })
	return fixed && s.zone == nil
}

// ID returns the identity of a tick, in whole seconds: the instant of the tick, or for a nominal tick its local time on a scale of its own.
// Identities strictly increase along the ticks of a schedule, and a local time has the same identity by any zone data. A tick that stands for several
// skipped times has the identity of the latest.
func (s *Schedule) ID(tick time.Time) time.Time {
	if s.zone == nil || tick.IsZero() {
		return tick
	}
	return time.Unix(s.nominalTime(tick.Unix())-aheadOfAll, 0).UTC()
}

// nominalTime returns the latest local time that a tick stands for, as the Unix time at which UTC shows it.
func (s *Schedule) nominalTime(tick int64) int64 {
	shown := periodAt(s.zone, tick).wallClock(tick)
	if slices.ContainsFunc(s.rules, func(r rule) bool { return r.(*wall).matchesTime(shown) }) {
		return shown
	}
	_, reached := reachedBy(s.zone, tick-1) // the clock has skipped the time that the tick stands for
	latest := reached
	for _, r := range s.rules {
		latest = max(latest, r.(*wall).lastOnFace(reached, shown))
	}
	return latest
}

// matchesTime reports whether the expression names a time of the wall clock.
func (w *wall) matchesTime(shown int64) bool {
	midnight := shown - floorMod(shown, secondsPerDay)
	of := shown - midnight
	return w.face.Hour>>(of/3600)&(w.face.Minute>>(of/60%60))&(w.face.Second>>(of%60))&1 != 0 && w.namesDay(midnight)
}

// lastOnFace returns the last time in (after, until] that the expression names; math.MinInt64 if there is none.
func (w *wall) lastOnFace(after, until int64) int64 {
	last := int64(math.MinInt64)
	for reach := int64(1); last == math.MinInt64 && reach < 2*(until-after); reach *= 2 {
		from := max(until-reach, after)
		for match, ok := w.nextOnFace(from, until); ok && match <= until; match, ok = w.nextOnFace(match, until) {
			last = match
		}
	}
	return last
}

// IDAt returns the greatest identity that a tick up to an instant can have.
func (s *Schedule) IDAt(instant time.Time) time.Time {
	if s.zone == nil {
		return instant.Truncate(time.Second)
	}
	_, reached := reachedBy(s.zone, instant.Unix())
	return time.Unix(reached-aheadOfAll, 0).UTC()
}

// Instant returns the instant at which the tick with an identity is due by the zone data of this schedule. ok is false if there is no such tick.
func (s *Schedule) Instant(id time.Time) (at time.Time, ok bool) {
	at = id
	if s.zone != nil && !id.IsZero() {
		at = time.Unix(firstReach(s.zone, id.Unix()+aheadOfAll), 0).UTC()
	}
	return at, s.Has(at) && s.ID(at).Equal(id)
}

// After returns the first tick whose identity is greater than id, or the zero time if there is none.
func (s *Schedule) After(id time.Time) time.Time {
	at, _ := s.Instant(id)
	tick := s.Next(at.Add(-time.Nanosecond))
	if !tick.IsZero() && !s.ID(tick).After(id) {
		tick = s.Next(tick)
	}
	return tick
}

// UpTo returns the last tick whose identity is not greater than id, or the zero time if there was none.
func (s *Schedule) UpTo(id time.Time) time.Time {
	at, _ := s.Instant(id)
	tick := s.Prev(at.Add(time.Nanosecond))
	if !tick.IsZero() && s.ID(tick).After(id) {
		tick = s.Prev(tick)
	}
	return tick
}

// Behind returns the number of seconds by which the identity of a tick at an instant would be behind that instant.
func (s *Schedule) Behind(now time.Time) int64 {
	return now.Unix() - s.IDAt(now).Unix()
}

// LocalTime returns the local time, as if it were UTC, of a nominal tick with an identity.
func LocalTime(id time.Time) time.Time { return id.Add(aheadOfAll * time.Second).UTC() }

// SameZone reports whether the zone of another schedule has the same clock. It compares the two years before an instant, since when ticks may be
// open, and the twenty years after it.
func (s *Schedule) SameZone(as *Schedule, at time.Time) bool {
	if s.location == as.location {
		return true
	}
	from, until := at.AddDate(-2, 0, 0), at.AddDate(20, 0, 0)
	return HashZone(s.location, from, until) == HashZone(as.location, from, until)
}

// Has reports whether an instant is a tick.
func (s *Schedule) Has(at time.Time) bool { return s.Next(at.Add(-time.Nanosecond)).Equal(at) }

// firstReach returns the first instant at which a zone's clock shows a time or a later one.
func firstReach(zone *time.Location, wanted int64) int64 {
	for from := wanted - lookBack; ; {
		p := periodAt(zone, from)
		if at := max(p.instant(wanted), from); at < p.end {
			return at
		}
		from = p.end
	}
}

// ZoneRules returns a hash of the changes of the clock from 2020 to 2037 in the zone of a nominal schedule, and "" for other schedules. Zone data
// that differ there have different hashes.
func (s *Schedule) ZoneRules() string {
	const begin, end = 1_577_836_800, lawEnds // 2020-01-01
	if s.zone == nil {
		return ""
	}
	hash, last := sha256.New(), int64(math.MinInt64)
	for at := int64(begin); at < end; {
		p := periodAt(s.zone, at)
		if p.offset != last {
			fmt.Fprintln(hash, at, p.offset)
		}
		at, last = p.end, p.offset
	}
	return hex.EncodeToString(hash.Sum(nil)[:4])
}
