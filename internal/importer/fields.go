package importer

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// The indexes of the fields of a moment.
const (
	second = iota
	minute
	hour
	dayOfMonth
	month
	dayOfWeek
	fieldCount
)

// A span is the range of values of a field, and the names of its values.
type span struct {
	name      string
	low, high int
	names     string // three letters each, from low
}

var spans = [fieldCount]span{
	{name: "second", high: 59}, {name: "minute", high: 59}, {name: "hour", high: 23}, {name: "day of month", low: 1, high: 31},
	{name: "month", low: 1, high: 12, names: "janfebmaraprmayjunjulaugsepoctnovdec"}, {name: "day of week", high: 6, names: "sunmontuewedthufrisat"},
}

func (s span) all() uint64 { return steps(s.low, s.high, 1) }

// steps returns the set of low, low+step and so on, up to high.
func steps(low, high, step int) (set uint64) {
	for v := low; v <= high; v += step {
		set |= 1 << v
	}
	return set
}

// A field is one parsed field of a cron expression.
type field struct {
	set    uint64
	text   string // as written, or a form of it that cronclave reads in the same way; "" for a field without a text
	star   bool   // text begins with "*"
	wild   bool   // the dialect does not count the field as restricted
	exact  bool   // cronclave reads text as set, without a warning
	chosen bool   // one value of set, chosen by the job's name
}

// any reports whether the field restricts nothing.
func (f field) any(index int) bool { return f.set == spans[index].all() && !f.chosen }

// A dialect describes the rules by which one program reads cron expressions.
type dialect struct {
	name         string
	bareStep     reading // of 5/15
	backwards    reading // of 22-2
	seven        seven   // what 7 is as a day of the week
	longNames    bool    // names of more than three letters
	question     bool    // ? is *
	random       bool    // a~b
	stepInside   bool    // a step above the highest value is refused
	unrestricted dayRule // which day fields do not count
	restricted   dayPair // what two restricted day fields mean
}

// A seven is what 7 means as a day of the week.
type seven int

const (
	noSeven    seven = iota
	lastSunday       // 7 follows 6, so 5-7 is Friday to Sunday
	firstDay         // 7 is 0, so 5-7 goes backwards
)

// A dayPair says what two restricted day fields mean.
type dayPair int

const (
	eitherDay dayPair = iota // one match is enough
	bothDays                 // both must match
	noPair                   // they are refused
)

// A dayRule decides whether a day field counts as unrestricted. If one of the two day fields is unrestricted, both must match; otherwise, either.
type dayRule int

const (
	byFirstChar dayRule = iota // it begins with "*"
	byContent                  // it has all values, and days of the month count from 0, which only "*" has
	byItem                     // an item of it is "*" or "?"
	byStep                     // an item of it is "*" or "?", also with the step 1
)

func (d dialect) isWild(f field) bool {
	switch d.unrestricted {
	case byFirstChar:
		return f.star
	case byContent:
		return f.set == steps(0, 31, 1) || f.set == steps(0, 6, 1)
	}
	for item := range strings.SplitSeq(f.text, ",") {
		if item == "*" || item == "?" || d.unrestricted == byStep && (item == "*/1" || item == "?/1") {
			return true
		}
	}
	return false
}

// A reading is what a dialect makes of a form that others refuse.
type reading int

const (
	refuses reading = iota
	neverRuns
	takesFirst // 5/15 is 5
	takesTail  // 5/15 is 5-59/15
	wraps      // 22-2 is 22-23,0-2
)

func dialects() map[string]dialect {
	return map[string]dialect{
		"debian":       {name: "Debian's cron", backwards: neverRuns, seven: lastSunday, random: true},
		"cronie":       {name: "cronie", backwards: neverRuns, seven: lastSunday, random: true},
		"busybox":      {name: "busybox crond", bareStep: takesFirst, backwards: wraps, unrestricted: byContent},
		"openbsd":      {name: "OpenBSD's cron", seven: lastSunday, random: true},
		"supercronic":  {name: "supercronic", bareStep: takesTail, backwards: neverRuns, seven: firstDay, longNames: true, question: true, stepInside: true, unrestricted: byItem},
		"systemd-cron": {name: "systemd-cron", seven: lastSunday, longNames: true, restricted: bothDays},
	}
}

// robfig is the parser of Kubernetes, dkron and ofelia. parseCrontab is the Python library that yacron uses.
var (
	robfig       = dialect{name: "robfig/cron", bareStep: takesTail, question: true, unrestricted: byStep}
	parseCrontab = dialect{name: "yacron", bareStep: takesTail, question: true, unrestricted: byItem, restricted: noPair}
)

// parseField parses a field. The error is the reason for which the entry is refused.
func (d dialect) parseField(index int, text string) (field, error) {
	f := field{text: text, star: strings.HasPrefix(text, "*"), exact: true}
	s := spans[index]
	spread := false
	for item := range strings.SplitSeq(text, ",") {
		set, random, exact, err := d.parseItem(s, index, item)
		if err != nil {
			return f, err
		}
		f.set |= set
		f.exact = f.exact && exact
		spread = spread || random
	}
	if spread {
		return d.spreadField(s, f)
	}
	f.wild = d.isWild(f)
	if index == dayOfMonth {
		f.set &^= 1
	}
	if f.set == 0 {
		return f, fmt.Errorf("%s accepts %q, which is no %s", d.name, shorten(text), s.name)
	}
	if !f.exact {
		f.text = s.format(f.set, index)
	}
	return f, nil
}

// spreadField returns a field with a random value, such as 0~30, as one in which the job's name decides the value.
func (d dialect) spreadField(s span, f field) (field, error) {
	low, high, _ := strings.Cut(f.text, "~")
	if strings.ContainsAny(f.text, ",/-") {
		return f, fmt.Errorf("%q has a random value in a list, or with a step", f.text)
	}
	from, to := s.low, s.high
	var err error
	if low != "" {
		from, _, err = d.value(s, low)
	}
	if high != "" && err == nil {
		to, _, err = d.value(s, high)
	}
	if err != nil {
		return f, err
	}
	if from > to {
		return f, fmt.Errorf("%q goes backwards", f.text)
	}
	return field{set: steps(from, to, 1), text: fmt.Sprintf("H(%d-%d)", from, to), exact: true, chosen: true}, nil
}

func (d dialect) parseItem(s span, index int, item string) (set uint64, random, exact bool, err error) {
	if strings.Contains(item, "~") {
		if !d.random {
			return 0, false, false, fmt.Errorf("%s has no random values such as %q", d.name, item)
		}
		return 0, true, true, nil
	}
	body, stepText, stepped := strings.Cut(item, "/")
	step := 1
	if stepped {
		if step, err = number(stepText); err != nil || step == 0 {
			return 0, false, false, fmt.Errorf("%q is no step", item)
		}
		if d.stepInside && (step > s.high || len(stepText) > 2) {
			return 0, false, false, fmt.Errorf("%s refuses the step of %q", d.name, item)
		}
	}
	low, high, exact := s.low, s.high, true
	lowText, highText, isRange := strings.Cut(body, "-")
	switch {
	case body == "*":
		if low = d.lowestValue(s, index); low < s.low {
			exact = step == 1
		}
	case body == "?" && d.question && (index == dayOfMonth || index == dayOfWeek || d.name == robfig.name):
		exact = false
	case isRange:
		return d.parseRange(s, index, item, lowText, highText, step)
	default:
		low, exact, err = d.value(s, body)
		if err != nil {
			return 0, false, false, err
		}
		if low > s.high { // Sunday as 7
			low, exact = low%7, exact && !stepped
		}
		if !stepped {
			return 1 << low, false, exact, nil
		}
		return d.bareStepOf(s, item, low, step)
	}
	exact = exact && step <= high-low+1
	return steps(low, high, min(step, high-low+1)), false, exact, nil
}

// lowestValue returns the value at which "*" begins.
func (d dialect) lowestValue(s span, index int) int {
	if d.unrestricted == byContent && index == dayOfMonth {
		return 0
	}
	return s.low
}

func (d dialect) bareStepOf(s span, item string, low, step int) (set uint64, random, exact bool, err error) {
	switch d.bareStep {
	case takesFirst:
		return 1 << low, false, false, nil
	case takesTail:
		return steps(low, s.high, step), false, false, nil
	}
	return 0, false, false, fmt.Errorf("%s refuses %q, a step without a range", d.name, item)
}

func (d dialect) parseRange(s span, index int, item, lowText, highText string, step int) (set uint64, random, exact bool, err error) {
	low, exactLow, err := d.value(s, lowText)
	if err != nil {
		return 0, false, false, err
	}
	high, exactHigh, err := d.value(s, highText)
	if err != nil {
		return 0, false, false, err
	}
	exact = exactLow && exactHigh && step <= high-low+1
	if low > high {
		if d.backwards != wraps {
			verb := "refuses"
			if d.backwards == neverRuns {
				verb = "accepts, and never runs,"
			}
			return 0, false, false, fmt.Errorf("%s %s %q, which goes backwards", d.name, verb, item)
		}
		if step != 1 {
			return 0, false, false, fmt.Errorf("%q goes backwards in steps", item)
		}
		return steps(low, s.high, 1) | steps(d.lowestValue(s, index), high, 1), false, false, nil
	}
	set = steps(low, high, step)
	if index == dayOfWeek && set&(1<<7) != 0 {
		set = set&^(1<<7) | 1
	}
	return set, false, exact, nil
}

// value parses a number or a name. exact is false if cronclave does not read the text.
func (d dialect) value(s span, text string) (v int, exact bool, err error) {
	if n, err := number(text); err == nil {
		switch {
		case n >= s.low && n <= s.high, n == 7 && s.high == 6 && d.seven == lastSunday:
			return n, true, nil
		case n == 7 && s.high == 6 && d.seven == firstDay:
			return 0, false, nil
		case n == 7 && s.high == 6:
			return 0, false, fmt.Errorf("%s does not read 7 as Sunday", d.name)
		}
		return 0, false, fmt.Errorf("%s %q is out of range %d-%d", s.name, text, s.low, s.high)
	}
	name := strings.ToLower(text)
	if len(name) >= 3 && s.names != "" && isLetters(name) {
		if i := strings.Index(s.names, name[:3]); i >= 0 && i%3 == 0 && (len(name) == 3 || d.longNames) {
			return s.low + i/3, len(name) == 3, nil
		}
	}
	return 0, false, fmt.Errorf("%q is no %s%s", shorten(text), s.name, foreignForm(text))
}

// foreignForm returns an explanation for forms of Quartz and its relatives.
func foreignForm(text string) string {
	if upper := strings.ToUpper(text); strings.ContainsAny(upper, "L#W") && len(text) <= 5 {
		return ": L, W and # have no equivalent"
	}
	return ""
}

func isLetters(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < 'a' || r > 'z' }) < 0
}

// number parses a number without a sign.
func number(text string) (int, error) {
	if text == "" || len(text) > 9 || strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' }) >= 0 {
		return 0, errors.New("not a number")
	}
	return strconv.Atoi(text) //nolint:wrapcheck // digits only
}

// format formats a set: "*", a step, or a list of numbers and ranges.
func (s span) format(set uint64, index int) string {
	if set == s.all() {
		return "*"
	}
	if text := s.formatSteps(set, index); text != "" {
		return text
	}
	var items []string
	for set != 0 {
		low := bits.TrailingZeros64(set)
		high := low + bits.TrailingZeros64(^(set >> low)) - 1
		set &^= steps(low, high, 1)
		switch item := strconv.Itoa(low); {
		case high == low:
			items = append(items, item)
		case high == low+1:
			items = append(items, item, strconv.Itoa(high))
		default:
			items = append(items, item+"-"+strconv.Itoa(high))
		}
	}
	return strings.Join(items, ",")
}

// formatSteps formats a set of at least four values in equal steps up to the field's end. Otherwise it returns "". A day field never begins with "*", because
// that changes the day rule.
func (s span) formatSteps(set uint64, index int) string {
	low := bits.TrailingZeros64(set)
	step := bits.TrailingZeros64(set&^(1<<low)) - low
	if bits.OnesCount64(set) < 4 || step < 2 || steps(low, s.high, step) != set {
		return ""
	}
	if low == s.low && index != dayOfMonth && index != dayOfWeek {
		return fmt.Sprintf("*/%d", step)
	}
	return fmt.Sprintf("%d-%d/%d", low, s.high, step)
}

func shorten(text string) string {
	const most = 40
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
