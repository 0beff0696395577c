package cronspec

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
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
	// Name is the job's name, which determines the values of H.
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
	exceptions *exceptions    // nil for none
	after      int64          // all ticks are after this instant
	until      int64          // no tick is after this instant
	key        string
	digest     string
	remarks    []*ParseError
}

// A rule computes the instants of one expression, in Unix seconds.
type rule interface {
	// nextInstant returns the first instant after the given one, up to limit, and whether there is one. It takes bounded time.
	nextInstant(after, limit int64) (int64, bool)
	// dialOn returns the instants of the expression in a part of a day.
	dialOn(stretch) dial
}

// ErrNoTick is wrapped by the error of [Parse] if the schedule has no tick because of Except, ExceptDates, StartsAt or ExpiresAt.
var ErrNoTick = errors.New("no tick is left")

// Parse returns the schedule for a list of expressions. An instant that several expressions name is one tick. If an expression is invalid, the error
// is a *[ParseError]. If several are invalid, their errors are joined, and errors.As finds the first. Parse does not panic on any input.
func Parse(exprs []string, o Options) (*Schedule, error) {
	if o.Location == nil {
		o.Location = time.UTC
	}
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

// nextTick returns the first tick after the given instant, up to limit.
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

// ceilSecond returns the first whole second that is not before t.
func ceilSecond(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// prevTick returns the last tick before an instant, not earlier than 1970. It uses only nextTick: it goes back in growing steps until it finds a
// tick, and then finds the last tick by bisection. The first step is the distance between the next two ticks, which is a good guess.
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
