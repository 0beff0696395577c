package console

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// History prints records. If a record contains output, the output follows below its line.
func (p Printer) History(records []journal.Record) {
	if len(records) == 0 {
		fmt.Fprintln(p.Out, "no runs")
		return
	}
	t := newTable("TIME", "JOB", "TICK", "REPLICA", "SLOT", "TOKEN", "OUTCOME", "DURATION", "RUN", "WHY")
	for _, r := range records {
		t.addRow(markOf(r.Outcome), p.formatStamp(r.When()), r.Job, p.formatStamp(r.Tick), r.Replica, slotOf(r), ifRun(r, fmt.Sprint(r.Token)), r.Outcome, durationText(r),
			ifRun(r, r.RunID), Why(r))
	}
	t.below = func(row int) {
		if row == 0 || records[row-1].Output == nil {
			return
		}
		if cut := records[row-1].OutputCut; cut > 0 {
			fmt.Fprintf(p.Out, "    %s\n", cluster.LeftOut(cut))
		}
		for line := range strings.Lines(*records[row-1].Output) {
			fmt.Fprintf(p.Out, "    %s\n", strings.TrimRight(line, "\n"))
		}
	}
	t.print(p)
}

// late is the minimum delay of a run that is shown.
const late = 2 * time.Second

// Late returns the time from a tick to the start of the first attempt of its run. The delay can come from the job's jitter, or from the wait for a slot of
// the job, a slot of the pool or a replica. Late returns 0 for delays that are not worth showing, and for runs that the schedule did not start.
func Late(r journal.Record) time.Duration {
	by := r.Started.Sub(r.Tick)
	if r.Started.IsZero() || r.Tick.IsZero() || by < late || r.Trigger != "" && r.Trigger != "schedule" || r.Attempt > 1 || r.FailedTries > 0 {
		return 0
	}
	return by
}

// Why returns the details of a record, or "-" without any: the delay of the run, the trigger if it was not the schedule, the reason for the outcome, and the
// attempts.
func Why(r journal.Record) string { return cmp.Or(detailsOf(r, r.Reason), "-") }

// WhyInFull returns the same details as [Why] with the full text of the reason, or "" without any. `cronclave why` prints it.
func WhyInFull(r journal.Record) string { return detailsOf(r, cluster.ReasonText(r)) }

func detailsOf(r journal.Record, reason string) string {
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
	return strings.TrimSpace(strings.Join(words, ", ") + triesText(r))
}

// triesText returns a remark about the failed attempts in a run, or "".
func triesText(r journal.Record) string {
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

// ifRun returns s if the record is about a run, and "-" if it is about a tick without a run.
func ifRun(r journal.Record, s string) string {
	if r.Token == 0 && r.Started.IsZero() {
		return "-"
	}
	return s
}

func durationText(r journal.Record) string {
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

// Stamp formats a time as RFC 3339 in UTC, for messages that scripts may parse.
func Stamp(t time.Time) string { return Printer{}.formatStamp(t) }

// formatStamp formats a time as RFC 3339 in the printer's zone.
func (p Printer) formatStamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return p.inZone(t).Format(time.RFC3339)
}
