// Package cronspec computes the instants of cron schedules, with the same result on every machine.
//
// A schedule is a list of expressions. An expression has the five fields of cron, or six fields with the seconds first, or is a name such as "@daily"
// or "@every 90s". [Parse] parses a list for a time zone. The instants of a schedule are called ticks. [Schedule.Next] and [Schedule.Prev] return the
// tick after or before an instant. The result does not depend on a clock, on the machine's time zone, or on start times. So replicas with the same
// configuration compute the same ticks without communication.
//
// To get the same ticks on every machine, take zones from [LoadLocation], which uses only the built-in zone data, or from [Zones] with the same data
// on every machine. [time.LoadLocation] prefers the zone files of the machine, which may differ between machines.
//
// # Two kinds of clock
//
// The fields are matched with SpecSchedule.Next of robfig/cron, but only against local times: a date and a time of day without a zone. The zone is
// then applied as in Debian's cron, with two kinds of expressions:
//
//   - If the minute or the hour field starts with "*", the expression follows the clock: it fires whenever the clock of the zone shows a matching
//     time. It fires twice in an hour that is repeated, and never in an hour that is skipped.
//   - Any other expression is a fixed-time expression: it fires at the first instant at which the clock shows a matching time or a later time. So all
//     matching times in a skipped hour or day become one tick right after it, and a matching time that the clock shows twice fires only once.
//
// # The day rule
//
// As in Debian's cron, a day must match both the day-of-month and the day-of-week field if one of these fields starts with "*" (also "*/2").
// Otherwise it is enough that one field matches.
//
// # H
//
// "H" stands for a value that depends only on the field and the job's name, so that a thousand hourly jobs do not all start on the hour. "H" is one
// value of the field, and "H(0-29)" one value of the range. "H/15" is every 15th value, beginning at one of the first 15 values. "H(0-29)/10" is
// every 10th value of the range. In the day-of-month field, "H" is at most 28, so that every month has the day. The index of the value among the
// candidates is
//
//	SHA-256("H" NUL field NUL job), first 8 bytes as a big-endian number,
//	modulo the number of candidates
//
// In this formula, field is "second", "minute", "hour", "day of month", "month" or "day of week". The formula will not change between versions.
//
// # Exceptions
//
// [Options] can except instants, which are then not ticks: Next and Prev skip them. Schedules with different exceptions have different keys and
// digests. An expression in Except excepts exactly its own instants: "0 12 * * *" excepts noon, and "* * 12 * * *" the whole hour. The rules above,
// such as the daylight-saving rules, also apply to expressions in Except. For example, the schedule "30 2 * * *" has no ticks left if the same
// expression is in Except. But "* 2 * * *" in Except leaves a tick on each day on which the clock skips 2:30, because the tick then comes right after
// the skipped time, not between 2:00 and 3:00. A date in ExceptDates excepts all instants of that day, by the clock of the zone.
//
// # Limits
//
// Ticks are whole seconds between the years 1 and 9999. Parse refuses a schedule without any tick within the 400-year cycle of the calendar. It also
// refuses a schedule if all instants are excepted on about 15,000 successive days with instants. 15,000 days are 40 years, in which every kind of
// year occurs.
package cronspec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/units"
)

const (
	firstInstant = -62_135_596_800 // 0001-01-01T00:00:00Z, the zero time
	lastInstant  = 253_402_300_799 // 9999-12-31T23:59:59Z, the last instant of RFC 3339
	// lawEnds is 2038-01-01T00:00:00Z. From about that time on, zone data consists of rules that repeat, instead of single changes. So an expression
	// without an instant after lawEnds has no further instants.
	lawEnds = 2_145_916_800
)

// Options has the settings of a schedule besides its expressions.
type Options struct {
	// Location is the time zone of the expressions; nil means UTC. A zone from [LoadLocation] is the same on every machine.
	Location *time.Location
	// Name is the job's name, which determines the values of H. A part from "@" on, the name of the only replica that runs the job, has no effect, so that such
	// a job has the same ticks on every replica.
	Name string
	// Except has expressions whose instants are not ticks. They have the same syntax and the same zone as the expressions of the schedule.
	Except []string
	// ExceptDates has days without ticks, such as "2026-12-25", in the zone Location.
	ExceptDates []string
	// StartsAt and ExpiresAt bound the ticks: all ticks are at or after StartsAt and before ExpiresAt. Zero means no bound.
	StartsAt, ExpiresAt time.Time
}

// A Schedule is the set of the instants of its expressions, without the exceptions in its [Options]. [Parse] returns it. It is immutable, and safe
// for concurrent use.
type Schedule struct {
	rules      []rule
	zone       *time.Location // the zone if ticks are nominal; otherwise nil
	location   *time.Location // the zone of the expressions
	exceptions *exceptions    // nil if there are no exceptions
	after      int64          // all ticks are after this instant
	until      int64          // no tick is after this instant
	key        string
	digest     string
	remarks    []*ParseError
}

// A rule computes the instants of one expression, in Unix seconds.
type rule interface {
	// nextInstant returns the first instant after the given instant, up to limit, and reports whether there is one. It takes bounded time.
	nextInstant(after, limit int64) (int64, bool)
	// dialOn returns the instants of the expression in a part of a day.
	dialOn(stretch) dial
}

// ErrNoTick is wrapped by the error of [Parse] if the schedule has no tick because of Except, ExceptDates, StartsAt or ExpiresAt.
var ErrNoTick = errors.New("no tick is left")

// Parse returns the schedule for a list of expressions. An instant that several expressions name is one tick. If an expression is invalid, the error
// is a *[ParseError]. If several are invalid, their errors are joined, and errors.As finds the first. Parse does not panic on any input.
func Parse(exprs []string, o Options) (*Schedule, error) {
	o.Location = cmp.Or(o.Location, time.UTC)
	if len(exprs) == 0 {
		return nil, &ParseError{Message: "no expression", Hint: `write for example "0 3 * * *"`}
	}
	s := Schedule{after: firstInstant, until: lastInstant}
	rules, keys, faults := parseAll(exprs, parser{options: o, remarks: &s.remarks})
	s.rules, s.location, s.zone = rules, o.Location, nominalZone(rules, o.Location)
	s.remarkMixed()
	more, faulty := s.readExceptions(o)
	faults = append(faults, faulty...)
	switch {
	case len(faults) == 1:
		return nil, faults[0]
	case len(faults) > 0:
		return nil, errors.Join(faults...)
	case len(more) > 0 && !s.hasTick():
		return nil, fmt.Errorf("%w: all instants of the schedule are excepted, or out of its time", ErrNoTick)
	}
	s.key = strings.Join(append(keys, more...), "; ")
	sum := sha256.Sum256([]byte(s.key))
	s.digest = hex.EncodeToString(sum[:8])
	if s.zone != nil {
		s.digest = zoneTag(s.zone) + "." + s.digest
	}
	return &s, nil
}

// parseAll parses a list of expressions. Expressions with the same meaning become one rule. keys has the canonical texts of the rules, sorted.
func parseAll(exprs []string, p parser) (rules []rule, keys []string, faults []error) {
	for i, text := range exprs {
		p.index, p.text = i, text
		r, key, err := p.parseExpression()
		switch {
		case err != nil:
			faults = append(faults, err)
		case !slices.Contains(keys, key):
			rules = append(rules, r)
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return rules, keys, faults
}

// Next returns the first tick strictly after an instant, in UTC and whole seconds, or the zero time if there is none.
func (s *Schedule) Next(after time.Time) time.Time {
	if tick, ok := s.nextTick(after.Unix(), s.until); ok {
		return time.Unix(tick, 0).UTC()
	}
	return time.Time{}
}

func (s *Schedule) nextTick(after, limit int64) (int64, bool) {
	after = max(after, s.after)
	if after >= limit {
		return 0, false
	}
	limit = min(limit, after+calendarCycle)
	if s.exceptions == nil {
		return s.nextNamed(after, limit)
	}
	return s.nextUnexcepted(after, limit)
}

// nextNamed returns the first instant of any expression after the given instant, up to limit. It ignores exceptions.
func (s *Schedule) nextNamed(after, limit int64) (int64, bool) {
	found := false
	for _, r := range s.rules {
		// The earliest tick found so far is the limit for the remaining rules.
		if tick, ok := r.nextInstant(after, limit); ok {
			limit, found = tick, true
		}
	}
	return limit, found
}

// Prev returns the last tick strictly before an instant, in UTC and whole seconds, or the zero time if there was none since 1970.
func (s *Schedule) Prev(before time.Time) time.Time {
	if tick, ok := s.prevTick(min(ceilSecond(before), s.until+1)); ok {
		return time.Unix(tick, 0).UTC()
	}
	return time.Time{}
}

func ceilSecond(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// prevTick returns the last tick before an instant, not earlier than 1970. It uses only nextTick: it goes back in growing steps until it finds a
// tick, and then finds the last tick by bisection. The first step is the distance between the next two ticks, because the distance to the previous
// tick is often the same.
func (s *Schedule) prevTick(before int64) (int64, bool) {
	reach := int64(1)
	if t, ok := s.nextTick(before-1, s.until); ok {
		if u, ok := s.nextTick(t, s.until); ok {
			reach = u - t
		}
	}
	start := max(s.after+1, 0)
	for end := before; end > start; reach *= 2 { // no tick in [end, before)
		from := max(before-reach, start)
		if tick, ok := s.nextTick(from-1, end-1); ok {
			return s.lastTick(tick, end), true
		}
		end = from
	}
	return 0, false
}

// lastTick returns the last tick in [tick, end). tick must be a tick. Each iteration at least halves the search range.
func (s *Schedule) lastTick(tick, end int64) int64 {
	for {
		next, ok := s.nextTick(tick, end-1)
		if !ok {
			return tick
		}
		tick = next
		middle := tick + (end-tick)/2
		if next, ok = s.nextTick(middle-1, end-1); ok {
			tick = next
		} else {
			end = middle
		}
	}
}

// Key returns a canonical text of the schedule: the sorted expressions with their zone, followed by the exceptions and the bounds. In the
// expressions, H, names and redundant notations are resolved. Schedules with equal keys have the same ticks. Use the text only for comparisons,
// because its form may change between versions.
func (s *Schedule) Key() string { return s.key }

// Digest returns a hash of [Schedule.Key], 16 hexadecimal digits. For a schedule with nominal ticks, the digest begins with 8 digits of a hash of the
// zone's name and a dot. So the digest shows whether the zone changed. Identities from different zones cannot be compared.
func (s *Schedule) Digest() string { return s.digest }

// An every is an "@every" expression, with its interval in seconds. Its instants are the multiples of the interval in Unix time, so that they do not
// depend on the start time of a replica.
type every int64

func (e every) nextInstant(after, limit int64) (int64, bool) {
	step := int64(e)
	past := floorMod(after, step)
	if limit-after < step-past {
		return 0, false
	}
	return after - past + step, true
}

// floorMod returns the non-negative remainder of a modulo n.
func floorMod(a, n int64) int64 {
	past := a % n
	if past < 0 {
		past += n
	}
	return past
}

// parseEvery parses the duration after "@every". offset is its position in the expression.
func (p *parser) parseEvery(text string, offset int) (every, error) {
	if text == "" {
		return 0, p.newFault(offset, "@every without a duration", `write for example "@every 90s"`)
	}
	d, err := units.ParseDuration(text)
	switch {
	case err != nil:
		return 0, p.newFault(offset, quote(text)+" is not a duration", `durations look like "90s", "1h30m" or "2d"`)
	case d < time.Second:
		return 0, p.newFault(offset, fmt.Sprintf("@every %s is too short", text), "at least 1s")
	case d%time.Second != 0:
		hint := fmt.Sprintf("whole seconds only, for example %s", d.Round(time.Second))
		return 0, p.newFault(offset, fmt.Sprintf("@every %s is not a whole number of seconds", text), hint)
	}
	return every(d / time.Second), nil
}
