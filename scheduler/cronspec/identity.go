package cronspec

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A tick has an identity, a time that is the same on every replica, even if replicas have different zone data.
//
// A schedule has nominal ticks if all its expressions are fixed-time expressions and its zone is not UTC. The identity of a nominal tick is the local
// time that its expression names, and its instant is only the time at which it is due. In all other schedules, the identity of a tick is its instant.
// This includes lists with both kinds of expressions, because local times and instants have no common order.

// aheadOfAll is at least the greatest offset of any zone since 1900. The identity of a nominal tick is its local time, interpreted as UTC, minus
// aheadOfAll. So an identity is never later than its instant, with any zone data. If a decided tick has an identity that is later than the clock, the
// clock was set back.
const aheadOfAll = 14 * 60 * 60 // seconds

// Nominal reports whether the ticks of the schedule are identified by local times.
func (s *Schedule) Nominal() bool { return s.zone != nil }

// Zone returns the zone of a schedule with nominal ticks, and nil for other schedules.
func (s *Schedule) Zone() *time.Location { return s.zone }

func nominalZone(rules []rule, zone *time.Location) *time.Location {
	if zone == time.UTC || slices.ContainsFunc(rules, func(r rule) bool { w, ok := r.(*wall); return !ok || w.clock }) {
		return nil
	}
	return zone
}

// Mixed reports whether the schedule has both fixed-time expressions and other expressions, in a zone other than UTC. Its ticks are identified by
// their instants. So a tick may run twice while replicas have different data for the zone.
func (s *Schedule) Mixed() bool {
	fixed := slices.ContainsFunc(s.rules, func(r rule) bool { w, ok := r.(*wall); return ok && !w.clock })
	return fixed && s.zone == nil
}

// ID returns the identity of a tick, in whole seconds. It is the instant of the tick, or for a nominal tick a time that is computed from the local
// time alone: see [LocalTime]. A later tick has a greater identity. The identity of a nominal tick is the same with any zone data. A tick that stands
// for several skipped times has the identity of the latest of these times.
func (s *Schedule) ID(tick time.Time) time.Time {
	if s.zone == nil || tick.IsZero() {
		return tick
	}
	return time.Unix(s.nominalTime(tick.Unix())-aheadOfAll, 0).UTC()
}

// nominalTime returns the latest local time for which a tick stands, in Unix seconds as if the time were in UTC.
func (s *Schedule) nominalTime(tick int64) int64 {
	shown := periodAt(s.zone, tick).wallClock(tick)
	if slices.ContainsFunc(s.rules, func(r rule) bool { return r.(*wall).matchesTime(shown) }) {
		return shown
	}
	_, reached := reachedBy(s.zone, tick-1) // the tick stands for times that the clock skipped
	latest := reached
	for _, r := range s.rules {
		latest = max(latest, r.(*wall).lastOnFace(reached, shown))
	}
	return latest
}

func (w *wall) matchesTime(shown int64) bool {
	midnight := shown - floorMod(shown, secondsPerDay)
	of := shown - midnight
	return w.face.Hour>>(of/3600)&(w.face.Minute>>(of/60%60))&(w.face.Second>>(of%60))&1 != 0 && w.namesDay(midnight)
}

// lastOnFace returns the last local time in (after, until] that the expression names, or math.MinInt64 if there is none.
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

// IDAt returns the greatest possible identity of a tick that is not after an instant.
func (s *Schedule) IDAt(instant time.Time) time.Time {
	if s.zone == nil {
		return instant.Truncate(time.Second)
	}
	_, reached := reachedBy(s.zone, instant.Unix())
	return time.Unix(reached-aheadOfAll, 0).UTC()
}

// Instant returns the instant of the tick with this identity, computed from the schedule's zone data. ok is false if the schedule has no such tick.
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

// Behind returns the difference in seconds between now and the identity of a tick that is due now. It is zero for schedules without nominal ticks.
func (s *Schedule) Behind(now time.Time) int64 {
	return now.Unix() - s.IDAt(now).Unix()
}

// LocalTime returns the local time of the nominal tick with this identity, with UTC as its zone.
func LocalTime(id time.Time) time.Time { return id.Add(aheadOfAll * time.Second).UTC() }

// SameZone reports whether the zones of two schedules have the same offsets, from two years before an instant to twenty years after it. Older offsets
// do not matter, because ticks of that age are not open any more.
func (s *Schedule) SameZone(as *Schedule, at time.Time) bool {
	if s.location == as.location {
		return true
	}
	from, until := at.AddDate(-2, 0, 0), at.AddDate(20, 0, 0)
	return HashZone(s.location, from, until) == HashZone(as.location, from, until)
}

// Has reports whether an instant is a tick.
func (s *Schedule) Has(at time.Time) bool { return s.Next(at.Add(-time.Nanosecond)).Equal(at) }

// firstReach returns the first instant at which a zone's clock shows the time wanted or a later time.
func firstReach(zone *time.Location, wanted int64) int64 {
	for from := wanted - lookBack; ; {
		p := periodAt(zone, from)
		if at := max(p.instant(wanted), from); at < p.end {
			return at
		}
		from = p.end
	}
}

// ZoneRules returns a hash of the zone's offset changes from 2020 to 2037, for a schedule with nominal ticks. Otherwise it returns "". Zone data with
// other changes in these years has another hash.
func (s *Schedule) ZoneRules() string {
	const begin, end = 1_577_836_800, lawEnds // begin is 2020-01-01T00:00:00Z
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

// hashPlace returns a hash of its parts: the first 8 bytes, big-endian, of the SHA-256 of the parts joined by NUL. SHA-256 spreads similar names such
// as "backup-1" and "backup-2" evenly, and is available in every language.
func hashPlace(parts ...string) uint64 {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return binary.BigEndian.Uint64(sum[:8])
}

// Jitter returns the delay of a job's tick, a whole number of milliseconds from 0 to less than max. It depends only on the arguments, and is the same
// on every machine and in every version. If next, the job's next tick, is nearer than max, the delay is less than the time until next. A zero next
// means that there is no next tick.
//
// The delay is limit * h / 2^64. limit is the smaller of max and next - tick. h is the first 8 bytes, big-endian, of the SHA-256 of "jitter", the
// job's name and the tick in decimal Unix seconds, joined by NUL.
func Jitter(job string, tick, next time.Time, max time.Duration) time.Duration {
	limit := max
	if !next.IsZero() {
		limit = min(limit, next.Sub(tick))
	}
	if limit <= 0 {
		return 0
	}
	h := hashPlace("jitter", job, strconv.FormatInt(tick.Unix(), 10))
	delay, _ := bits.Mul64(uint64(limit), h)
	return time.Duration(delay).Truncate(time.Millisecond)
}
