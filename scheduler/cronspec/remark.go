package cronspec

import (
	"fmt"
	"math"
	"time"
)

// Remarks returns a remark for each part of an expression that other programs read in another way: its place, the reading here, and in Hint a text
// that means the same everywhere.
func (s *Schedule) Remarks() []*ParseError { return s.remarks }

// addRemark adds a remark on the expression that is being read.
func (p *parser) addRemark(offset int, message, hint string) {
	*p.remarks = append(*p.remarks, &ParseError{Except: p.except, Index: p.index, Offset: offset, Message: message, Hint: hint})
}

// remarkGap adds a remark on a fixed-time expression with several times that daylight saving skips at once. Debian's cron runs each of them.
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

// timesWithin returns the number of matching times of the wall clock in [from, to).
func (w *wall) timesWithin(from, to int64) (n int) {
	for at := from - 1; ; n++ {
		next, ok := w.nextOnFace(at, to)
		if !ok || next >= to {
			return n
		}
		at = next
	}
}

// readingOfStep returns the remark on a single value with a step, such as "5/15".
func (k kind) readingOfStep(low, high, step int) (message, hint string) {
	return fmt.Sprintf("%d/%d is %s here; Debian's cron refuses it", low, step, k.formatSet(stepSet(low, high, step))), fmt.Sprintf("%d-%d/%d means the same everywhere", low, high, step)
}

// readingOfSunday returns the remark on a range such as FRI-SUN, whose end is the Sunday after it.
func readingOfSunday(low int) (message, hint string) {
	return fmt.Sprintf("the range is %s to Sunday here; Debian's cron and cronie accept it, and it matches no day there", time.Weekday(low)), fmt.Sprintf("%d-7 means the same everywhere", low)
}

// remarkMixed adds a remark on the fixed-time expressions of a list that also has others.
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
