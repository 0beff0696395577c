package importer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// calendarWords returns the expressions that words of systemd stand for.
func calendarWords() map[string]string {
	half, year := "*-01,07-01 00:00:00", "*-01-01 00:00:00"
	return map[string]string{
		"minutely": "*-*-* *:*:00", "hourly": "*-*-* *:00:00", "daily": "*-*-* 00:00:00", "weekly": "Mon *-*-* 00:00:00", "monthly": "*-*-01 00:00:00",
		"quarterly": "*-01,04,07,10-01 00:00:00", "semiannually": half, "semi-annually": half, "biannually": half, "bi-annually": half,
		"yearly": year, "annually": year, "anually": year,
	}
}

// calendarEvent parses the value of OnCalendar=. zone is "" if the expression has none.
func calendarEvent(text string) (times []calendarTime, zone string, err error) {
	words := strings.Fields(text)
	if n := len(words); n > 1 && isZone(words[n-1]) {
		zone, words = words[n-1], words[:n-1]
	}
	if len(words) == 1 {
		if long, ok := calendarWords()[strings.ToLower(words[0])]; ok {
			words = strings.Fields(long)
		}
	}
	if len(words) == 0 || strings.HasPrefix(words[0], "@") {
		return nil, "", fmt.Errorf("%q is an instant, and no schedule", shorten(text))
	}
	c := calendarParser{}
	c.fields[dayOfWeek] = field{set: spans[dayOfWeek].all(), text: "*"}
	date, clock := "*-*-*", "00:00:00"
	if first := words[0]; isLetters(strings.ToLower(first[:1])) {
		words = words[1:]
		if err := c.readWeekdays(first); err != nil {
			return nil, "", err
		}
	}
	if len(words) > 0 && strings.ContainsAny(words[0], "-~") {
		date, words = words[0], words[1:]
	}
	if len(words) > 0 && strings.Contains(words[0], ":") {
		clock, words = words[0], words[1:]
	}
	if len(words) > 0 {
		return nil, "", fmt.Errorf("%q is no calendar expression", shorten(text))
	}
	if err := errors.Join(c.readClock(clock), c.readDate(date)); err != nil {
		return nil, "", errors.New(strings.Split(err.Error(), "\n")[0])
	}
	times, err = c.express()
	return times, zone, err
}

// isZone reports whether a word may be a zone: UTC, or a name with a slash.
func isZone(word string) bool {
	return word == "UTC" || strings.Contains(word, "/") && isLetters(strings.ToLower(word[:1])) && !strings.ContainsAny(word, ":*")
}

// A calendarParser is a calendar expression. All its parts must match.
type calendarParser struct {
	moment
	fromEnd uint64 // days counted from the end of the month, in place of the days of the month
}

func (c *calendarParser) readWeekdays(text string) error {
	f := field{}
	for item := range strings.SplitSeq(strings.TrimSuffix(text, ","), ",") {
		low, high, isRange := strings.Cut(item, "..")
		if !isRange {
			if low, high, isRange = strings.Cut(item, "-"); !isRange {
				high = low
			}
		}
		from, err := weekdayNamed(low)
		to, err2 := weekdayNamed(high)
		if err != nil || err2 != nil {
			return fmt.Errorf("%q is no day of the week", shorten(item))
		}
		const sunday = 7 // the week of systemd begins with Monday
		if from, to = cmp.Or(from, sunday), cmp.Or(to, sunday); from > to {
			return fmt.Errorf("%q goes backwards", item)
		}
		f.set |= steps(from, to, 1)
	}
	if f.set&(1<<7) != 0 {
		f.set = f.set&^(1<<7) | 1
	}
	c.fields[dayOfWeek] = c.formatted(dayOfWeek, f.set)
	return nil
}

func weekdayNamed(name string) (int, error) {
	v, _, err := dialect{longNames: true}.value(spans[dayOfWeek], name)
	if err == nil && len(name) > 3 && !strings.EqualFold(name, time.Weekday(v).String()) || name == "" || name[0] <= '9' {
		return 0, errors.New("no name of a day")
	}
	return v, err
}

func (c *calendarParser) formatted(index int, set uint64) field {
	return field{set: set, text: spans[index].format(set, index)}
}

func (c *calendarParser) readClock(text string) error {
	parts := strings.Split(text, ":")
	if len(parts) == 2 {
		parts = append(parts, "00")
	}
	if len(parts) != 3 {
		return fmt.Errorf("%q is no time", text)
	}
	for i, index := range []int{hour, minute, second} {
		set, err := calendarField(index, parts[i])
		if err != nil {
			return err
		}
		c.fields[index] = c.formatted(index, set)
	}
	return nil
}

func (c *calendarParser) readDate(text string) error {
	days, fromEnd := "", false
	months := text
	if i := strings.LastIndexAny(text, "-~"); i >= 0 {
		months, days, fromEnd = text[:i], text[i+1:], text[i] == '~'
	}
	years := "*"
	if y, m, ok := strings.Cut(months, "-"); ok {
		years, months = y, m
	}
	if err := c.readYears(years); err != nil {
		return err
	}
	set, err := calendarField(month, months)
	if err != nil {
		return err
	}
	c.fields[month] = c.formatted(month, set)
	set, err = calendarField(dayOfMonth, days)
	if fromEnd && strings.Contains(days, "/") { // the step counts the days towards the end: ~07/1 are the last seven
		set, err = stepsToEnd(days)
	}
	if err != nil {
		return err
	}
	if fromEnd {
		c.fromEnd = set
		return nil
	}
	c.fields[dayOfMonth] = c.formatted(dayOfMonth, set)
	return nil
}

// stepsToEnd returns the days from the end for "07/2": the 7th, 5th, 3rd and last.
func stepsToEnd(text string) (set uint64, err error) {
	first, step, _ := strings.Cut(text, "/")
	from, err := number(first)
	by, err2 := number(step)
	if err != nil || err2 != nil || by == 0 || from < 1 || from > 28 {
		return 0, fmt.Errorf("%q is no day from the end of a month", text)
	}
	for v := from; v >= 1; v -= by {
		set |= 1 << v
	}
	return set, nil
}

func (c *calendarParser) readYears(text string) (err error) {
	low, high, isRange := strings.Cut(text, "..")
	if !isRange {
		high = low
	}
	if text == "*" {
		return nil
	}
	if len(low) == 2 {
		return fmt.Errorf("%q is a year of two digits", text)
	}
	c.years, err = parseYears(low + "-" + high)
	return err
}

// calendarField parses a component: "*", or a list of values, ranges and steps. A range does not wrap.
func calendarField(index int, text string) (set uint64, err error) {
	s := spans[index]
	if strings.Contains(text, ".") && strings.Count(text, ".") != 2*strings.Count(text, "..") {
		return 0, fmt.Errorf("%q has a fraction of a second", text)
	}
	for item := range strings.SplitSeq(text, ",") {
		body, stepText, stepped := strings.Cut(item, "/")
		lowText, highText, isRange := strings.Cut(body, "..")
		step := 1
		if stepped {
			if step, err = number(stepText); err != nil || step == 0 {
				return 0, fmt.Errorf("%q is no step", item)
			}
		}
		low, high := s.low, s.high
		if body != "*" || stepped {
			if low, err = number(lowText); err != nil {
				return 0, fmt.Errorf("%q is no %s", shorten(item), s.name)
			}
			switch {
			case isRange:
				if high, err = number(highText); err != nil {
					return 0, fmt.Errorf("%q is no %s", shorten(item), s.name)
				}
			case !stepped:
				high = low
			}
		}
		if low < s.low || high > s.high || low > high || stepped && low+step > high {
			return 0, fmt.Errorf("%q is no %s", shorten(item), s.name)
		}
		set |= steps(low, high, min(step, s.high+1))
	}
	return set, nil
}

// express returns the schedules. Days from the end of the month become lists for the months of each length.
func (c *calendarParser) express() ([]calendarTime, error) {
	c.both = true
	if c.fromEnd == 0 {
		t, err := c.moment.express()
		return []calendarTime{t}, err
	}
	var times []calendarTime
	var dates []string
	for _, length := range []struct {
		days   int
		months uint64
	}{{31, 1<<1 | 1<<3 | 1<<5 | 1<<7 | 1<<8 | 1<<10 | 1<<12}, {30, 1<<4 | 1<<6 | 1<<9 | 1<<11}, {28, 1 << 2}} {
		m := c.moment
		months := m.fields[month].set & length.months
		if months == 0 {
			continue
		}
		var days uint64
		for k := 1; k <= length.days; k++ {
			if c.fromEnd&(1<<k) != 0 {
				days |= 1 << (length.days + 1 - k)
			}
		}
		if length.days == 28 {
			days, dates = februaryDays(c.fromEnd)
		}
		if days == 0 {
			return nil, errors.New("a day from the end that not every month has")
		}
		m.fields[month], m.fields[dayOfMonth] = c.formatted(month, months), c.formatted(dayOfMonth, days)
		t, err := m.express()
		if err != nil {
			return nil, err
		}
		times = append(times, t)
	}
	for i := range times {
		times[i].dates = dates
	}
	return times, nil
}

// lastLeapDate is the last year for which the calendar of a last day of February has entries.
const lastLeapDate = 2099

// februaryDays returns the days of February that lie so many days from its end in a common or in a leap year, and the dates on which only the other kind
// matches.
func februaryDays(fromEnd uint64) (days uint64, wrong []string) {
	matches := func(day, length int) bool { return day <= length && fromEnd&(1<<(length+1-day)) != 0 }
	for day := 1; day <= 29; day++ {
		if matches(day, 28) || matches(day, 29) {
			days |= 1 << day
		}
	}
	for year := 2026; year <= lastLeapDate; year++ {
		length := time.Date(year, 3, 0, 0, 0, 0, 0, time.UTC).Day()
		for day := 1; day <= length; day++ {
			if days&(1<<day) != 0 && !matches(day, length) {
				wrong = append(wrong, fmt.Sprintf("%d-02-%02d", year, day))
			}
		}
	}
	slices.Sort(wrong)
	return days, wrong
}
