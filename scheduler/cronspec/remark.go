package cronspec

import (
	"fmt"
	"math"
	"time"
)

// Remarks returns a remark for each part of an expression that other cron programs interpret differently, and for a [Schedule.Mixed] schedule.
// Message has the interpretation of this package. Hint has a notation without the problem; it may be empty.
func (s *Schedule) Remarks() []*ParseError { return s.remarks }

// addRemark adds a remark on the current expression.
func (p *parser) addRemark(offset int, message, hint string) {
	*p.remarks = append(*p.remarks, &ParseError{Except: p.except, Index: p.index, Offset: offset, Message: message, Hint: hint})
}

// remarkGap adds a remark on a fixed-time expression if daylight saving skips several of its times at once. Here they become one tick, but Debian's
// cron runs each of them.
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

// readingOfStep returns the remark on a value with a step, such as "5/15".
func (k kind) readingOfStep(low, high, step int) (message, hint string) {
	return fmt.Sprintf("%d/%d is %s here; Debian's cron refuses it", low, step, k.formatSet(stepSet(low, high, step))), fmt.Sprintf("%d-%d/%d means the same everywhere", low, high, step)
}

// readingOfSunday returns the remark on a range that ends with Sunday, such as FRI-SUN.
func readingOfSunday(low int) (message, hint string) {
	return fmt.Sprintf("the range is %s to Sunday here; Debian's cron and cronie accept it, and it matches no day there", time.Weekday(low)), fmt.Sprintf("%d-7 means the same everywhere", low)
}

// remarkMixed adds a remark on the first fixed-time expression of a schedule that also has other expressions.
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
