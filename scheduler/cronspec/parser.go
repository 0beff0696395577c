package cronspec

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

type parser struct {
	options Options
	except  bool // the expression is in Options.Except
	index   int
	text    string
	remarks *[]*ParseError
}

// A word is a part of the expression between blanks.
type word struct {
	text   string
	offset int
}

// The indexes of the fields in an expression with six fields.
const (
	fieldSecond = iota
	fieldMinute
	fieldHour
	fieldDay
	fieldMonth
	fieldWeekday
	fieldCount
)

func (p *parser) newFault(offset int, message, hint string) error {
	return &ParseError{Except: p.except, Index: p.index, Offset: offset, Message: message, Hint: hint}
}

// parseExpression returns the rule of an expression, and its canonical text.
func (p *parser) parseExpression() (rule, string, error) {
	words := splitWords(p.text)
	if len(words) == 0 {
		return nil, "", p.newFault(len(p.text), "empty expression", `write for example "0 3 * * *"`)
	}
	first := words[0]
	if name, zone, found := strings.Cut(first.text, "="); found && (name == "TZ" || name == "CRON_TZ") {
		hint := `use the job's key timezone`
		if zone != "" {
			hint += fmt.Sprintf(": timezone = %s", quote(zone))
		}
		return nil, "", p.newFault(first.offset, name+"= is not part of an expression", hint)
	}
	if first.text == "@every" {
		offset := first.offset + len(first.text)
		rest := p.text[offset:]
		d := strings.Trim(rest, blanks)
		e, err := p.parseEvery(d, offset+strings.Index(rest, d))
		return e, fmt.Sprintf("every %d s", e), err
	}
	if strings.HasPrefix(first.text, "@") {
		fields, err := p.expandName(words)
		if err != nil {
			return nil, "", err
		}
		words = fields
	}
	return p.parseFields(words)
}

const blanks = " \t"

func splitWords(text string) []word {
	var words []word
	for at := 0; at < len(text); {
		size := strings.IndexAny(text[at:], blanks)
		if size < 0 {
			size = len(text) - at
		}
		if size > 0 {
			words = append(words, word{text[at : at+size], at})
		}
		at += size + 1
	}
	return words
}

// expandName returns the six fields for a name such as "@daily". All fields have the offset of the name.
func (p *parser) expandName(words []word) ([]word, error) {
	name := words[0]
	var fields string
	switch name.text {
	case "@yearly", "@annually":
		fields = "0 0 0 1 1 *"
	case "@monthly":
		fields = "0 0 0 1 * *"
	case "@weekly":
		fields = "0 0 0 * * 0"
	case "@daily", "@midnight":
		fields = "0 0 0 * * *"
	case "@hourly":
		fields = "0 0 * * * *"
	case "@reboot":
		return nil, p.newFault(name.offset, "@reboot is not supported",
			"a job belongs to the whole cluster, which has no moment of booting; use a schedule, or the machine's service manager")
	default:
		return nil, p.newFault(name.offset, "unknown schedule "+quote(name.text),
			"there are @hourly, @daily (@midnight), @weekly, @monthly, @yearly (@annually) and @every D")
	}
	if len(words) > 1 {
		return nil, p.newFault(words[1].offset, fmt.Sprintf("%s after %s", quote(words[1].text), name.text), name.text+" stands alone")
	}
	expanded := splitWords(fields)
	for i := range expanded {
		expanded[i].offset = name.offset
	}
	return expanded, nil
}

// parseFields parses five fields, or six fields with the seconds first.
func (p *parser) parseFields(words []word) (rule, string, error) {
	if len(words) == fieldCount-1 {
		words = slices.Insert(words, 0, word{"0", words[0].offset})
	}
	if len(words) < fieldCount {
		return nil, "", p.newFault(len(p.text), fmt.Sprintf("5 or 6 fields are needed, not %d", len(words)),
			"minute, hour, day of month, month, day of week; seconds may come before them")
	}
	if len(words) > fieldCount {
		return nil, "", p.newFault(words[fieldCount].offset, fmt.Sprintf("5 or 6 fields are needed, not %d", len(words)),
			"there is no year, and no user or command, after the day of week")
	}
	var sets [fieldCount]uint64
	for i, w := range words {
		s := scanner{parser: p, at: w.offset, rest: w.text, kind: kindOf(i)}
		set, err := s.readField()
		if err != nil {
			return nil, "", err
		}
		sets[i] = set
	}
	return p.assembleRule(words, sets)
}

// assembleRule returns the rule for the sets of the fields. It passes a canonical text to robfig's parser and uses the same text in the key, so that
// the key describes exactly the computed schedule.
func (p *parser) assembleRule(words []word, sets [fieldCount]uint64) (rule, string, error) {
	star := func(field int) bool { return strings.HasPrefix(words[field].text, "*") }
	clock := star(fieldMinute) || star(fieldHour) || p.options.Location == time.UTC
	both := star(fieldDay) || star(fieldWeekday)
	day, weekday := kindOf(fieldDay).allValues(), kindOf(fieldWeekday).allValues()
	if !both && (sets[fieldDay] == day || sets[fieldWeekday] == weekday) {
		sets[fieldDay], sets[fieldWeekday], both = day, weekday, true // one day field matches every day, so with the rule "either field" every day matches
	}
	fields := make([]string, fieldCount)
	for i, set := range sets {
		fields[i] = kindOf(i).formatSet(set)
	}
	text := strings.Join(fields, " ")
	face, err := readFace(text, both)
	if err != nil {
		return nil, "", p.newFault(words[0].offset, err.Error(), "")
	}
	w := &wall{face: face, zone: p.options.Location, clock: clock, index: p.index}
	if err := p.checkComes(w, words); err != nil {
		return nil, "", err
	}
	p.remarkGap(w, words[fieldMinute].offset)
	p.remarkDays(words, sets)
	key := fmt.Sprintf("%s, clock %t, both days %t, %s", text, clock, both, zoneKey(w.zone))
	return w, key, nil
}

// starBit is the bit by which robfig marks a day field that begins with "*".
const starBit = 1 << 63

// readFace parses six canonical fields with robfig's parser. It then sets the day rule: if both is true, both day fields must match, otherwise either
// field.
func readFace(text string, both bool) (*cron.SpecSchedule, error) {
	parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	schedule, err := parser.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", text, err)
	}
	face, ok := schedule.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("read %q: got a %T", text, schedule)
	}
	face.Location = time.UTC
	face.Dom &^= starBit
	face.Dow &^= starBit
	if both {
		face.Dom |= starBit
	}
	return face, nil
}

// checkComes returns an error if an expression has no instant: either no day of the calendar matches, or the zone's clock always skips its times.
func (p *parser) checkComes(w *wall, words []word) error {
	const limit = lawEnds + calendarCycle
	if _, ok := w.nextOnFace(lawEnds, limit); !ok {
		return p.newFault(words[fieldDay].offset, "such a day never comes",
			"no month of the month field has a day of the day-of-month field")
	}
	if _, ok := w.nextInstant(lawEnds, limit); !ok {
		return p.newFault(words[fieldHour].offset, "such an instant never comes",
			fmt.Sprintf("the clock of %s always skips this time", w.zone))
	}
	return nil
}

// A ParseError is an error in one expression, with its position and a hint. [Schedule.Remarks] also uses it.
type ParseError struct {
	// Except is true if the expression is in [Options.Except], and false if it is an expression of the schedule.
	Except bool
	// Index is the index of the expression in its list, from 0.
	Index int
	// Offset is the offset in the expression, in bytes, at which the error was found. If something is missing at the end, Offset is the length of the
	// expression.
	Offset int
	// Message describes the error, in lower case and without a full stop.
	Message string
	// Hint describes the remedy. It may be empty.
	Hint string
}

// Error returns the position, the message and the hint in one line.
func (e *ParseError) Error() string {
	list := ""
	if e.Except {
		list = "except, "
	}
	text := fmt.Sprintf("%sexpression %d, byte %d: %s", list, e.Index, e.Offset, e.Message)
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// quote shortens long input, so that messages stay readable.
func quote(text string) string {
	const most = 32
	if len(text) > most {
		text = text[:most] + "..."
	}
	return fmt.Sprintf("%q", text)
}

// foreignHint recognises notations of other cron dialects, and returns a hint with a replacement. text is the part that could not be parsed.
func foreignHint(text string) string {
	upper := strings.ToUpper(text)
	last := strings.HasPrefix(upper, "L") || len(upper) == len("FRIL") && strings.HasSuffix(upper, "L")
	switch {
	case strings.HasPrefix(upper, "?"):
		return `"?" is Quartz's; write "*"`
	case strings.HasPrefix(upper, "#"):
		return `the n-th weekday of a month ("#") is not supported; use a weekday alone and let the command look at the date`
	case text == "h":
		return `the place spread by the job's name is a capital "H"`
	case upper == "W", upper == "LW":
		return `the nearest weekday ("W") is not supported; use MON-FRI as the day of week`
	case last:
		return `the last day ("L") is not supported; use the days 28-31 and let the command look at the date`
	}
	return ""
}

// Remarks returns a remark for each part of an expression that other cron programs interpret differently, and for a [Schedule.Mixed] schedule.
// Message has the interpretation of this package. Hint describes how to avoid the difference, or is empty.
func (s *Schedule) Remarks() []*ParseError { return s.remarks }

func (p *parser) addRemark(offset int, message, hint string) {
	*p.remarks = append(*p.remarks, &ParseError{Except: p.except, Index: p.index, Offset: offset, Message: message, Hint: hint})
}

// remarkGap adds a remark on a fixed-time expression if daylight saving skips several of its times at once. This package makes one tick of them, but
// Debian's cron runs each of them.
func (p *parser) remarkGap(w *wall, offset int) {
	if w.clock || p.except {
		return
	}
	for from := int64(lawEnds); from < lawEnds+2*365*secondsPerDay; {
		before := periodAt(w.zone, from)
		if before.end == math.MaxInt64 {
			return
		}
		from = before.end
		after := periodAt(w.zone, from)
		if n := w.timesWithin(before.wallClock(from), after.wallClock(from)); n > 1 {
			p.addRemark(offset, fmt.Sprintf("the clock of %s skips %d of these times at once in spring; they are one run here; Debian's cron runs each of them", w.zone, n), "")
			return
		}
	}
}

// remarkDays adds a remark on a day field with a step beside a restricted day field of the other kind. Debian's cron, cronie and this package demand both, and
// most other programs either.
func (p *parser) remarkDays(words []word, sets [fieldCount]uint64) {
	for _, field := range []int{fieldDay, fieldWeekday} {
		other, text := fieldDay+fieldWeekday-field, words[field].text
		if !strings.HasPrefix(text, "*") || sets[field] == kindOf(field).allValues() || sets[other] == kindOf(other).allValues() {
			continue
		}
		message := fmt.Sprintf("a day must match both %s and %s here, as in Debian's cron; busybox, supercronic and Kubernetes take a day that matches either", quote(text), quote(words[other].text))
		p.addRemark(words[field].offset, message, fmt.Sprintf("%d-%d%s means either everywhere", kindOf(field).low, kindOf(field).high, text[1:]))
		return
	}
}

// timesWithin returns the number of matching local times in [from, to).
func (w *wall) timesWithin(from, to int64) (n int) {
	for at := from - 1; ; n++ {
		next, ok := w.nextOnFace(at, to)
		if !ok || next >= to {
			return n
		}
		at = next
	}
}

func (s *Schedule) remarkMixed() {
	if !s.Mixed() {
		return
	}
	for _, r := range s.rules {
		if w, ok := r.(*wall); ok && !w.clock {
			s.remarks = append(s.remarks, &ParseError{Index: w.index, Message: "its times are fixed, and other expressions of the list follow the clock: the ticks of this job are " +
				"identified by their instants, so one may run twice while replicas have different data of its zone", Hint: "two jobs, one for each kind, do not"})
			return
		}
	}
}
