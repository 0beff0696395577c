package console

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

// History prints records, each with its output below it, if that was read.
func (p Printer) History(records []journal.Record) {
	if len(records) == 0 {
		fmt.Fprintln(p.Out, "no runs")
		return
	}
	t := newTable("TIME", "JOB", "TICK", "REPLICA", "SLOT", "TOKEN", "OUTCOME", "DURATION", "RUN", "WHY")
	for _, r := range records {
		t.row(markOf(r.Outcome), p.stamp(r.When()), r.Job, p.stamp(r.Tick), r.Replica, slotOf(r), ifRun(r, fmt.Sprint(r.Token)), r.Outcome, duration(r),
			ifRun(r, r.RunID), Why(r))
	}
	t.below = func(row int) {
		if row == 0 || records[row-1].Output == nil {
			return
		}
		if cut := records[row-1].OutputCut; cut > 0 {
			fmt.Fprintf(p.Out, "    %s\n", operator.LeftOut(cut))
		}
		for line := range strings.Lines(*records[row-1].Output) {
			fmt.Fprintf(p.Out, "    %s\n", strings.TrimRight(line, "\n"))
		}
	}
	t.print(p)
}

// late is how long after its tick a run starts at least that is shown to be late.
const late = 2 * time.Second

// Late returns how long after its tick the first try of a run started: by the job's jitter, or since no slot, no place in the pool or no replica was
// free. It is 0 where that is usual, and for runs that the schedule did not start.
func Late(r journal.Record) time.Duration {
	by := r.Started.Sub(r.Tick)
	if r.Started.IsZero() || r.Tick.IsZero() || by < late || r.Trigger != "" && r.Trigger != "schedule" || r.Attempt > 1 || r.FailedTries > 0 {
		return 0
	}
	return by
}

// Why adds to the outcome of a record: the trigger unless that was the schedule, that it started late, the reason, and the attempts.
func Why(r journal.Record) string { return cmp.Or(additions(r, r.Reason), "-") }

// WhyInFull is as Why with the reason in full, as `cronclave why` has it; "" where there is nothing to add.
func WhyInFull(r journal.Record) string { return additions(r, operator.ReasonText(r)) }

func additions(r journal.Record, reason string) string {
	var words []string
	if by := Late(r); by > 0 {
		words = append(words, Span(by)+" after its tick")
	}
	if r.Trigger != "" && r.Trigger != "schedule" {
		words = append(words, r.Trigger)
	}
	if reason != "" {
		words = append(words, reason)
	}
	if r.Attempt > 1 {
		words = append(words, fmt.Sprintf("attempt %d", r.Attempt))
	}
	return strings.TrimSpace(strings.Join(words, ", ") + tries(r))
}

// tries says of a try that it was followed by another, and of a run how many have failed before its end.
func tries(r journal.Record) string {
	switch {
	case r.Retried:
		return " (tried again)"
	case r.FailedTries == 1:
		return " (after 1 failed try)"
	case r.FailedTries > 1:
		return fmt.Sprintf(" (after %d failed tries)", r.FailedTries)
	}
	return ""
}

// ifRun leaves out what a tick without a run does not have.
func ifRun(r journal.Record, s string) string {
	if r.Token == 0 && r.Started.IsZero() {
		return "-"
	}
	return s
}

func duration(r journal.Record) string {
	if r.DurationMS == nil {
		return "-"
	}
	return (time.Duration(*r.DurationMS) * time.Millisecond).String()
}

func slotOf(r journal.Record) string {
	if r.Slot == nil {
		return "-"
	}
	return fmt.Sprint(*r.Slot)
}

// Stamp formats an instant as RFC 3339, in UTC, for messages that a script may read.
func Stamp(t time.Time) string { return Printer{}.stamp(t) }

// stamp formats an instant as RFC 3339, in the printer's zone.
func (p Printer) stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return p.local(t).Format(time.RFC3339)
}
