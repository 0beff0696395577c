package cronspec

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"
)

const (
	firstInstant = -62_135_596_800 // 0001-01-01T00:00:00Z, the zero time
	lastInstant  = 253_402_300_799 // 9999-12-31T23:59:59Z, the last that RFC 3339 can write
	// lawEnds is 2038-01-01T00:00:00Z. From about then on the zones' data holds
	// rules that repeat, rather than single changes; so what does not come after
	// it never will.
	lawEnds = 2_145_916_800
)

// Options tell what an expression alone does not say.
type Options struct {
	// Location is the zone whose clock the fields mean; nil is UTC. Take it from
	// [LoadLocation], and it is the same on every machine.
	Location *time.Location
	// Name is the job's name; it places H.
	Name string
}

// Schedule is the union of the instants of its expressions. It is made by
// [Parse], never changes, and is safe for concurrent use.
type Schedule struct {
	rules  []rule
	key    string
	digest string
}

// rule computes the instants of one expression, in Unix seconds.
type rule interface {
	// next returns the first instant after the given one up to limit, and
	// whether there is one. It takes bounded time.
	next(after, limit int64) (int64, bool)
}

// Parse reads a list of expressions, which together make one schedule: an
// instant that several of them name is one tick. Its error is a *[ParseError],
// or several of them joined (one for each faulty expression); errors.As finds
// the first. It never panics, whatever the input.
func Parse(exprs []string, o Options) (*Schedule, error) {
	if o.Location == nil {
		o.Location = time.UTC
	}
	if len(exprs) == 0 {
		return nil, &ParseError{Message: "no expression", Hint: `write for example "0 3 * * *"`}
	}
	var s Schedule
	var keys []string
	var faults []error
	for i, text := range exprs {
		p := parser{options: o, index: i, text: text}
		r, key, err := p.parse()
		switch {
		case err != nil:
			faults = append(faults, err)
		case !slices.Contains(keys, key):
			s.rules = append(s.rules, r)
			keys = append(keys, key)
		}
	}
	if len(faults) == 1 {
		return nil, faults[0]
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	slices.Sort(keys)
	s.key = strings.Join(keys, "; ")
	sum := sha256.Sum256([]byte(s.key))
	s.digest = hex.EncodeToString(sum[:8])
	return &s, nil
}

// Next returns the first tick strictly after an instant, in UTC and whole
// seconds, or the zero time if none comes.
func (s *Schedule) Next(after time.Time) time.Time {
	if tick, ok := s.next(after.Unix()); ok {
		return time.Unix(tick, 0).UTC()
	}
	return time.Time{}
}

func (s *Schedule) next(after int64) (int64, bool) {
	if after >= lastInstant {
		return 0, false
	}
	after = max(after, firstInstant)
	limit := min(after+calendarCycle, lastInstant)
	found := false
	for _, r := range s.rules {
		// What the others found is the limit for the rest.
		if tick, ok := r.next(after, limit); ok {
			limit, found = tick, true
		}
	}
	return limit, found
}

// Prev returns the last tick strictly before an instant, in UTC and whole
// seconds, or the zero time if there was none since 1970.
func (s *Schedule) Prev(before time.Time) time.Time {
	end := before.Unix()
	if before.Nanosecond() > 0 {
		end++
	}
	if tick, ok := s.prev(min(end, lastInstant+1)); ok {
		return time.Unix(tick, 0).UTC()
	}
	return time.Time{}
}

// prev returns the last tick in [0, before). It asks next only: from further and
// further back until there is a tick, then by bisection for the last one. The
// distance to the tick after `before` is a good guess at how far back to go.
func (s *Schedule) prev(before int64) (int64, bool) {
	reach := int64(1)
	if t, ok := s.next(before - 1); ok {
		if u, ok := s.next(t); ok {
			reach = u - t
		}
	}
	last, end := int64(-1), before // no tick in [end, before)
	for last < 0 {
		if end <= 0 {
			return 0, false
		}
		from := max(before-reach, 0)
		if tick, ok := s.next(from - 1); ok && tick < end {
			last = tick
		} else {
			end = from
		}
		reach *= 2
	}
	return s.lastTick(last, end), true
}

// lastTick returns the last tick in [tick, end), tick being one. Each round at
// least halves what is left to search.
func (s *Schedule) lastTick(tick, end int64) int64 {
	for {
		next, ok := s.next(tick)
		if !ok || next >= end {
			return tick
		}
		tick = next
		middle := tick + (end-tick)/2
		if next, ok = s.next(middle - 1); ok && next < end {
			tick = next
		} else {
			end = middle
		}
	}
}

// Key returns a canonical text of the schedule: fields resolved (H, names, 7 as
// Sunday, redundant ways to write the same), expressions sorted, and the zone.
// Schedules with equal keys have the same ticks and may share one computation.
// The text is for comparing; its form may change between versions.
func (s *Schedule) Key() string { return s.key }

// Digest returns 16 hexadecimal digits of a hash of [Schedule.Key].
func (s *Schedule) Digest() string { return s.digest }
