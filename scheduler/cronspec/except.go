package cronspec

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// An exceptions has the expressions and dates whose instants are not ticks.
type exceptions struct {
	rules []rule
	dates []int64 // midnights in local time, sorted
	zone  *time.Location
}

// readExceptions parses the exceptions and the bounds of the options. keys has their parts of the schedule's key.
func (s *Schedule) readExceptions(o Options) (keys []string, faults []error) {
	rules, texts, faults := parseAll(o.Except, parser{options: o, except: true, remarks: &s.remarks})
	for _, text := range texts {
		keys = append(keys, "except "+text)
	}
	dates, err := parseDates(o.ExceptDates)
	if err != nil {
		faults = append(faults, err)
	}
	if len(dates) > 0 {
		keys = append(keys, "except "+formatDates(dates)+" in "+zoneKey(o.Location))
	}
	if len(keys) > 0 {
		s.exceptions = &exceptions{rules, midnightsOf(dates), o.Location}
	}
	if !o.StartsAt.IsZero() {
		s.after = max(s.after, ceilSecond(o.StartsAt)-1)
		keys = append(keys, fmt.Sprintf("from %d", s.after+1))
	}
	if !o.ExpiresAt.IsZero() {
		s.until = min(s.until, ceilSecond(o.ExpiresAt)-1)
		keys = append(keys, fmt.Sprintf("until %d", s.until))
	}
	return keys, faults
}

// parseDates parses days such as "2026-12-25". It returns them sorted and without duplicates.
func parseDates(texts []string) ([]time.Time, error) {
	var dates []time.Time
	for _, text := range texts {
		date, err := time.Parse(time.DateOnly, text)
		if err != nil {
			return nil, fmt.Errorf("except date %s: it must be a day such as \"2026-12-25\"", quote(text))
		}
		dates = append(dates, date)
	}
	slices.SortFunc(dates, time.Time.Compare)
	return slices.CompactFunc(dates, time.Time.Equal), nil
}

func midnightsOf(dates []time.Time) []int64 {
	list := make([]int64, len(dates))
	for i, date := range dates {
		list[i] = date.Unix()
	}
	return list
}

func formatDates(dates []time.Time) string {
	texts := make([]string, len(dates))
	for i, date := range dates {
		texts[i] = date.Format(time.DateOnly)
	}
	return strings.Join(texts, ",")
}

// hasTick reports whether the schedule has any tick. If the schedule has no end, hasTick searches from lawEnds, because from then on the rules of all
// zones repeat. Otherwise it searches the last calendar cycle before the end.
func (s *Schedule) hasTick() bool {
	from := max(s.after, lawEnds)
	if s.until < lastInstant {
		from = max(s.after, s.until-calendarCycle)
	}
	_, ok := s.nextTick(from, s.until)
	return ok
}

// enoughDays is the maximum number of days that are searched for an instant that is not excepted. Years differ by their first weekday and their
// length, and each combination occurs within any 40 years, even across a century without a leap day. The 10 extra days per year are for days that a
// clock change splits in two.
const enoughDays = 40 * (366 + 10)

// nextUnexcepted is [Schedule.nextNamed] without the excepted instants. For speed it works day by day, not instant by instant. A day with the same
// plan as the last day without a tick has no tick either, and is skipped.
func (s *Schedule) nextUnexcepted(after, limit int64) (int64, bool) {
	var barren plan // the plan of the last day without a tick
	for range enoughDays + len(s.exceptions.dates) {
		first, ok := s.nextNamed(after, limit)
		if !ok {
			return 0, false
		}
		st := stretchAt(s.exceptions.zone, first)
		after = st.instant(st.to) - 1
		if _, off := slices.BinarySearch(s.exceptions.dates, st.day); off {
			continue
		}
		p := plan{st.from - st.day, st.to - st.day, dialsOn(st, s.rules), dialsOn(st, s.exceptions.rules)}
		if p.equal(barren) {
			continue
		}
		if second, ok := p.firstSecond(); ok {
			tick := st.instant(st.day + second)
			return tick, tick <= limit
		}
		barren = p
	}
	return 0, false
}

// A plan has the instants of the expressions and of the exceptions in a part of a day. from and to are seconds since midnight; to is exclusive.
type plan struct {
	from, to        int64
	named, excepted dials
}

func (p plan) equal(o plan) bool {
	return p.from == o.from && p.to == o.to && slices.Equal(p.named, o.named) && slices.Equal(p.excepted, o.excepted)
}

// firstSecond returns the first second that is named and not excepted, in seconds since midnight.
func (p plan) firstSecond() (second int64, ok bool) {
	for at := p.from; at < p.to; at = (at/60 + 1) * 60 {
		seconds := p.named.minuteSet(at/60) &^ secondsBelow(at%60)
		if seconds != 0 {
			seconds &^= p.excepted.minuteSet(at / 60)
		}
		if seconds != 0 {
			second = at/60*60 + int64(bits.TrailingZeros64(seconds))
			return second, second < p.to
		}
	}
	return 0, false
}

// A stretch is the part of a day from an instant until the end of the day, or until the next change of the zone's offset. Its times are local times.
type stretch struct {
	period
	day      int64 // the midnight at which the day begins
	from, to int64
	reached  int64 // the latest local time that the clock showed before the stretch
}

func stretchAt(zone *time.Location, instant int64) stretch {
	_, reached := reachedBy(zone, instant-1)
	p := periodAt(zone, instant)
	from := p.wallClock(instant)
	day := from - floorMod(from, secondsPerDay)
	end := min(p.end, p.instant(day+secondsPerDay))
	return stretch{period: p, day: day, from: from, to: p.wallClock(end), reached: reached}
}

// A dial has the instants that an expression names on one day. minuteSet returns a bit set of the named seconds in minute n of the day, from 0.
type dial interface {
	minuteSet(n int64) (seconds uint64)
}

// A dials is the union of several dials.
type dials []dial

func dialsOn(st stretch, rules []rule) dials {
	list := make(dials, len(rules))
	for i, r := range rules {
		list[i] = r.dialOn(st)
	}
	return list
}

func (d dials) minuteSet(n int64) (seconds uint64) {
	for _, one := range d {
		seconds |= one.minuteSet(n)
	}
	return seconds
}

func secondsBelow(n int64) uint64 { return 1<<uint64(min(max(n, 0), 60)) - 1 }

// An everyDial has the instants of an "@every" expression on one day. first is the number of seconds from midnight to the first instant.
type everyDial struct{ step, first int64 }

func (e every) dialOn(st stretch) dial {
	return everyDial{int64(e), floorMod(-st.instant(st.day), int64(e))}
}

func (d everyDial) minuteSet(n int64) (seconds uint64) {
	at := floorMod(d.first-60*n, d.step)
	if at >= 60 {
		return 0
	}
	seconds = 1 << at
	for width := d.step; width < 60; width *= 2 { // each iteration doubles the number of seconds in the set
		seconds |= seconds << width
	}
	return seconds & secondsBelow(60)
}

// A wallDial has the instants of an expression with fields on one day. Times are in seconds since midnight.
type wallDial struct {
	hours, minutes, seconds uint64 // empty on a day that does not match
	since                   int64  // for a fixed-time expression: earlier times are ignored, because the clock has shown them before
	caught                  int64  // the tick for matching times that the clock skipped; -1 if there is none
}

func (w *wall) dialOn(st stretch) dial {
	d := wallDial{caught: -1}
	if w.namesDay(st.day) {
		d.hours, d.minutes, d.seconds = w.face.Hour, w.face.Minute, w.face.Second&secondsBelow(60)
	}
	if w.clock {
		return d
	}
	d.since = st.reached + 1 - st.day
	if st.from > st.reached+1 { // the clock skipped some time before the stretch
		if match, ok := w.nextOnFace(st.reached, st.from); ok && match <= st.from {
			d.caught = st.from - st.day
		}
	}
	return d
}

func (d wallDial) minuteSet(n int64) (seconds uint64) {
	if d.hours>>(n/60)&(d.minutes>>(n%60))&1 != 0 {
		seconds = d.seconds &^ secondsBelow(d.since-60*n)
	}
	if at := d.caught - 60*n; 0 <= at && at < 60 {
		seconds |= 1 << at
	}
	return seconds
}

func (w *wall) namesDay(midnight int64) bool {
	date := time.Unix(midnight, 0).UTC()
	day := w.face.Dom>>date.Day()&1 != 0
	weekday := w.face.Dow>>date.Weekday()&1 != 0
	matches := day || weekday
	if w.face.Dom&starBit != 0 { // readFace sets starBit if both day fields must match
		matches = day && weekday
	}
	return matches && w.face.Month>>date.Month()&1 != 0
}
