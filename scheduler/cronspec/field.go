package cronspec

import (
	"cmp"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// A kind describes the allowed values of one of the six fields.
type kind struct {
	name      string // used in errors, and in the hash for H
	low, high int    // the first and last value of "*"
	top       int    // the greatest number that is allowed
	spread    int    // the greatest value of H without a range
	names     string // the names of the values from low, three letters each
	bounds    string // a hint for a number out of range
}

func kindOf(field int) kind {
	switch field {
	case fieldSecond:
		return kind{name: "second", high: 59, top: 59, spread: 59, bounds: "the full minute is 0"}
	case fieldMinute:
		return kind{name: "minute", high: 59, top: 59, spread: 59, bounds: "the full hour is 0"}
	case fieldHour:
		return kind{name: "hour", high: 23, top: 23, spread: 23, bounds: "midnight is 0"}
	case fieldDay:
		return kind{name: "day of month", low: 1, high: 31, top: 31, spread: 28, bounds: "the first day is 1"}
	case fieldMonth:
		return kind{name: "month", low: 1, high: 12, top: 12, spread: 12,
			names: "janfebmaraprmayjunjulaugsepoctnovdec", bounds: "January is 1"}
	default:
		return kind{name: "day of week", high: 6, top: sundayAgain, spread: 6,
			names: "sunmontuewedthufrisat", bounds: "Sunday is 0 or 7"}
	}
}

// sundayAgain is the number for Sunday that cron accepts besides 0.
const sundayAgain = 7

func (k kind) allValues() uint64 { return stepSet(k.low, k.high, 1) }

func stepSet(low, high, step int) uint64 {
	var set uint64
	for v := low; v <= high; v += step {
		set |= 1 << v
	}
	return set
}

// valueNamed returns the value for a name such as "mon", in upper or lower case.
func (k kind) valueNamed(name string) (int, bool) {
	i := strings.Index(k.names, strings.ToLower(name))
	if len(name) != 3 || i < 0 || i%3 != 0 {
		return 0, false
	}
	return k.low + i/3, true
}

// formatSet formats a set for robfig's parser: "*", or a list of numbers and ranges.
func (k kind) formatSet(set uint64) string {
	if set == k.allValues() {
		return "*"
	}
	var items []string
	for set != 0 {
		low := bits.TrailingZeros64(set)
		high := low + bits.TrailingZeros64(^(set >> low)) - 1
		set &^= stepSet(low, high, 1)
		item := strconv.Itoa(low)
		if high > low {
			item += "-" + strconv.Itoa(high)
		}
		items = append(items, item)
	}
	return strings.Join(items, ",")
}

// A scanner parses one field. A field is a list of items separated by commas. Each item has the form
//
//	( "*" | value | value "-" value | "H" | "H(" value "-" value ")" ) [ "/" step ]
type scanner struct {
	*parser
	kind kind
	rest string // the part of the field that is not parsed yet
	at   int    // the offset of rest in the expression
}

func (s *scanner) readField() (uint64, error) {
	var set uint64
	for {
		items, err := s.readItem()
		if err != nil {
			return 0, err
		}
		set |= items
		if s.rest == "" {
			break
		}
		if !s.skipPrefix(",") {
			return 0, s.unexpectedFault()
		}
	}
	if s.kind.top == sundayAgain && set&(1<<sundayAgain) != 0 {
		set = set&^(1<<sundayAgain) | 1
	}
	return set, nil
}

func (s *scanner) skipPrefix(prefix string) bool {
	rest, found := strings.CutPrefix(s.rest, prefix)
	if found {
		s.rest = rest
		s.at += len(prefix)
	}
	return found
}

func (s *scanner) readItem() (uint64, error) {
	low, high, start := s.kind.low, s.kind.high, s.at
	switch {
	case s.skipPrefix("*"):
		step, err := s.readStep(low, high)
		return stepSet(low, high, max(step, 1)), err
	case s.skipPrefix("H"):
		return s.readSpread()
	}
	low, err := s.readValue()
	if err != nil {
		return 0, err
	}
	if s.skipPrefix("-") {
		if high, err = s.readUpper(low, start); err != nil {
			return 0, err
		}
		step, err := s.readStep(low, high)
		return stepSet(low, high, max(step, 1)), err
	}
	high = max(high, low)
	step, err := s.readStep(low, high)
	if err != nil || step == 0 { // a single value; a step, as in "5/15", would make it the start of a range
		return 1 << low, err
	}
	set := stepSet(low, high, step)
	s.addRemark(start, fmt.Sprintf("%d/%d is %s here; Debian's cron refuses it", low, step, s.kind.formatSet(set)), fmt.Sprintf("%d-%d/%d means the same everywhere", low, high, step))
	return set, nil
}

// readUpper parses the upper end of a range. low is the lower end, and start is its offset.
func (s *scanner) readUpper(low, start int) (int, error) {
	high, err := s.readValue()
	if err != nil {
		return 0, err
	}
	if s.kind.top == sundayAgain && high == 0 && low > 0 {
		high = sundayAgain // a range such as FRI-SUN ends with the Sunday after its first day
		message := fmt.Sprintf("the range is %s to Sunday here; Debian's cron and cronie accept it, and it matches no day there", time.Weekday(low))
		s.addRemark(start, message, fmt.Sprintf("%d-7 means the same everywhere", low))
	}
	if low > high {
		hint := fmt.Sprintf("write %d-%d,%d-%d; busybox reads it so, and Debian's cron never runs it", low, s.kind.high, s.kind.low, high)
		return 0, s.newFault(start, fmt.Sprintf("range %d-%d goes backwards", low, high), hint)
	}
	return high, nil
}

// readSpread parses the range and the step after H. It returns the values that H stands for in this job.
func (s *scanner) readSpread() (uint64, error) {
	low, high := s.kind.low, s.kind.spread
	if s.skipPrefix("(") {
		var err error
		start := s.at
		if low, err = s.readValue(); err != nil {
			return 0, err
		}
		if !s.skipPrefix("-") {
			return 0, s.unexpectedFault()
		}
		if high, err = s.readUpper(low, start); err != nil {
			return 0, err
		}
		if !s.skipPrefix(")") {
			return 0, s.unexpectedFault()
		}
	}
	step, err := s.readStep(low, high)
	if err != nil {
		return 0, err
	}
	job, _, _ := strings.Cut(s.options.Name, "@")
	hash := hashPlace("H", s.kind.name, job)
	if step == 0 {
		return 1 << (low + int(hash%uint64(high-low+1))), nil
	}
	return stepSet(low+int(hash%uint64(step)), high, step), nil
}

// readStep parses "/step", and returns 0 if there is none. It refuses a step that is longer than the range, because "*/90" in the minute field would
// not mean every 90 minutes.
func (s *scanner) readStep(low, high int) (int, error) {
	if !s.skipPrefix("/") {
		return 0, nil
	}
	digits := s.longestPrefix(isDigit)
	if digits == "" {
		return 0, s.unexpectedFault()
	}
	step, err := strconv.Atoi(digits)
	if err == nil && step >= 1 && step <= high-low+1 {
		s.skipPrefix(digits)
		return step, nil
	}
	return 0, s.newFault(s.at, fmt.Sprintf("step %s is out of range 1-%d", quote(digits), high-low+1),
		`steps begin anew at each turn of the field; for an interval of any length use "@every D"`)
}

func (s *scanner) readValue() (int, error) {
	if digits := s.longestPrefix(isDigit); digits != "" {
		v, err := strconv.Atoi(digits)
		if err != nil || v < s.kind.low || v > s.kind.top {
			message := fmt.Sprintf("%s %s is out of range %d-%d", s.kind.name, quote(digits), s.kind.low, s.kind.top)
			return 0, s.newFault(s.at, message, s.kind.bounds)
		}
		s.skipPrefix(digits)
		return v, nil
	}
	letters := s.longestPrefix(isLetter)
	v, ok := s.kind.valueNamed(letters)
	if !ok {
		return 0, s.unexpectedFault()
	}
	s.skipPrefix(letters)
	return v, nil
}

func (s *scanner) longestPrefix(class func(byte) bool) string {
	n := 0
	for n < len(s.rest) && class(s.rest[n]) {
		n++
	}
	return s.rest[:n]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func (s *scanner) unexpectedFault() error {
	what := cmp.Or(s.longestPrefix(isLetter), s.rest)
	if what == "" {
		return s.newFault(s.at, s.kind.name+" ends too early", s.valuesHint())
	}
	hint := foreignHint(what)
	if hint == "" && len(what) > 3 {
		if _, ok := s.kind.valueNamed(what[:3]); ok {
			hint = "names have three letters: " + strings.ToUpper(what[:3])
		}
	}
	hint = cmp.Or(hint, s.valuesHint())
	return s.newFault(s.at, fmt.Sprintf("unexpected %s in the %s", quote(what), s.kind.name), hint)
}

func (s *scanner) valuesHint() string {
	text := fmt.Sprintf("values are %d-%d", s.kind.low, s.kind.top)
	if s.kind.names != "" {
		text += fmt.Sprintf(" or names such as %s", strings.ToUpper(s.kind.names[:3]))
	}
	return text + "; also * for all, lists 1,2, ranges 1-5, steps */2, and H"
}
