package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

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
		t.addRow(markOf(r.Outcome), p.formatStamp(r.When()), r.Job, p.formatStamp(r.Tick), r.Replica, slotOf(r), ifRun(r, fmt.Sprint(r.Token)), string(r.Outcome), durationText(r),
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

// late is the shortest delay of a start that is shown.
const late = 2 * time.Second

// Late returns the time from a tick to the start of its run. The delay can come from the job's jitter, or from the wait for a slot of the job, a slot of the
// pool or a replica. Late returns 0 for delays below two seconds, for runs that the schedule did not start, and for runs with more than one attempt.
func Late(r journal.Record) time.Duration {
	by := r.Started.Sub(r.Tick)
	if r.Started.IsZero() || r.Tick.IsZero() || by < late || r.Trigger != "" && r.Trigger != "schedule" || r.Attempt > 1 || r.FailedTries > 0 {
		return 0
	}
	return by
}

// Why returns the details of a record: the delay of the run, the trigger if it was not the schedule, the reason for the outcome, and the attempts. It returns
// "-" for a record without details.
func Why(r journal.Record) string { return cmp.Or(detailsOf(r, string(r.Reason)), "-") }

// WhyInFull returns the same details as [Why], but the full text of the reason instead of its code. It returns "" for a record without details.
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

// Acts prints entries of the audit log. Times are relative to now.
func (p Printer) Acts(now time.Time, acts []journal.Act) {
	t := newTable("TIME", "USER", "ACT", "JOBS", "REASON")
	for _, a := range acts {
		t.addRow(plain, agoText(now, a.Time), p.cutText(a.By, 20), a.Kind, p.cutText(actJobs(a), 40), p.cutText(cmp.Or(a.Reason, "-"), 20))
	}
	t.print(p)
}

// Notifications prints the targets of notifications, and the deliveries to them.
func (p Printer) Notifications(n *cluster.Notifications) {
	if len(n.Targets) == 0 {
		fmt.Fprintln(p.Out, "no targets of notifications: see [notify.NAME] in docs/notifications.md")
		return
	}
	t := newTable("TARGET", "SENT", "REFUSED", "DROPPED", "REPEATED", "WAITING", "OLDEST", "FAULT")
	for _, one := range n.Targets {
		mark, oldest, fault := plain, "-", "-"
		if one.Oldest != nil {
			oldest = p.formatStamp(*one.Oldest)
		}
		if one.Fault != "" {
			mark, fault = bad, one.Fault+" since "+p.formatStamp(*one.Since)
		}
		t.addRow(mark, one.Name, fmt.Sprint(one.Sent), fmt.Sprint(one.Refused), fmt.Sprint(one.Dropped), fmt.Sprint(one.Repeated), fmt.Sprint(one.Waiting), oldest, fault)
	}
	t.print(p)
	if len(n.Deliveries) == 0 {
		return
	}
	fmt.Fprintln(p.Out)
	t = newTable("TIME", "TARGET", "EVENTS", "RESULT", "TRIES", "ANSWER")
	for _, d := range n.Deliveries {
		mark, tries := plain, fmt.Sprint(d.Tries)
		if d.Result != journal.DeliverySent && d.Result != journal.DeliveryExpired {
			mark = bad
		}
		if d.Repeated {
			tries += " (perhaps sent twice)"
		}
		t.addRow(mark, p.formatStamp(d.At), d.Target, p.cutText(DeliveryEvents(d), 60), d.Result, tries, cmp.Or(d.Answer, "-"))
	}
	t.print(p)
}

// DeliveryEvents names the events of a delivery.
func DeliveryEvents(d journal.Delivery) string {
	text := strings.Join(d.Events, ", ")
	switch more := d.Count - len(d.Events); {
	case len(d.Events) == 0:
		return fmt.Sprintf("%d events", d.Count)
	case more > 0:
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// actJobs returns the jobs of an audit entry, and the run, the tick or the end of the pause that the entry names. An entry about a replica has no jobs.
func actJobs(a journal.Act) string {
	if a.Replica != "" {
		return "replica " + a.Replica
	}
	text := strings.Join(a.Jobs, ", ")
	if more := a.JobCount - len(a.Jobs); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	switch {
	case a.RunID != "":
		text += ", run " + a.RunID
	case a.Tick != nil:
		text += ", tick " + Stamp(*a.Tick)
	case a.Until != nil:
		text += ", until " + Stamp(*a.Until)
	}
	if a.Unchanged > 0 {
		text += ": " + Unchanged(a)
	}
	return text
}

// Unchanged describes the audit entry of an act that changed nothing. If several such acts share the entry, the text has their number.
func Unchanged(a journal.Act) string {
	if a.Unchanged > 1 {
		return fmt.Sprintf("the newest of %d that changed nothing", a.Unchanged)
	}
	return "changed nothing"
}

// Paused prints, for each job, the result of a pause or a resume.
func (p Printer) Paused(jobs []cluster.PausedJob) {
	for _, j := range jobs {
		switch {
		case j.Paused:
			fmt.Fprintf(p.Out, "paused %s until %s\n", j.Job, pauseEnd(j))
		case j.WasPaused:
			fmt.Fprintf(p.Out, "resumed %s\n", j.Job)
		default:
			fmt.Fprintf(p.Out, "%s was not paused\n", j.Job)
		}
	}
}

func pauseEnd(j cluster.PausedJob) string {
	text := "it is resumed"
	if j.Until != nil {
		text = Stamp(*j.Until)
	}
	if j.Reason != "" {
		text += ": " + j.Reason
	}
	return text
}

// Canceled prints the runs of a job whose replicas were asked to stop them.
func (p Printer) Canceled(job string, runs []cluster.CanceledRun) {
	if len(runs) == 0 {
		fmt.Fprintf(p.Out, "nothing runs of job %s\n", job)
		return
	}
	for _, r := range runs {
		fmt.Fprintf(p.Out, "asked replica %s to stop run %s of job %s (slot %d, token %d)\n", r.Replica, r.RunID, r.Job, r.Slot, r.Token)
	}
}

// Explanation prints the explanation of what happened to a job at an instant, and the records of the tick.
func (p Printer) Explanation(s *cluster.Explanation) {
	fmt.Fprintf(p.Out, "job %s at %s: %s\n", s.Job, s.At.Format("2006-01-02 15:04:05 MST"), s.Phase)
	for _, line := range s.Lines {
		for n, part := range p.splitLines(line, 4) {
			fmt.Fprintf(p.Out, "%*s%s\n", 2+2*min(n, 1), "", part)
		}
	}
	if len(s.Runs) > 0 {
		fmt.Fprintln(p.Out)
		p.History(s.Runs)
	}
}

// Logs prints the output of runs while they write it. Lines of stdout go to Out. Lines of stderr and remarks about the output go to Err.
type Logs struct {
	Out, Err io.Writer
	Zone     *time.Location // zone of the times in front of lines
}

// Bare returns a viewer that prints lines without any addition.
func (l Logs) Bare() cluster.Viewer {
	return cluster.Viewer{Note: l.printNote, Line: func(line cluster.OutputLine) { fmt.Fprintln(l.writerOf(line), line.Line) }}
}

// JSON returns a viewer that prints each line as a JSON object.
func (l Logs) JSON() cluster.Viewer {
	return cluster.Viewer{Note: l.printNote, Line: func(line cluster.OutputLine) {
		_ = json.NewEncoder(l.Out).Encode(line) // errors are ignored here, because Output keeps the first error and the command fails with it
	}}
}

// Headed returns a viewer that prints lines unchanged. It prints a heading to Err before each line that belongs to another run than the line before.
func (l Logs) Headed() cluster.Viewer {
	current, v := "", l.Bare()
	show := v.Line
	v.Line = func(line cluster.OutputLine) {
		if line.RunID != current {
			fmt.Fprintf(l.Err, "==> run %s\n", line.RunID)
			current = line.RunID
		}
		show(line)
	}
	return v
}

// Prefixed returns a viewer that begins each line with its time, its replica and, if withJob is set, its job. When a run begins, it prints a heading to Err.
func (l Logs) Prefixed(withJob bool) cluster.Viewer {
	p := &prefixed{Logs: l, withJob: withJob, begun: map[string]journal.Record{}}
	return cluster.Viewer{Begin: p.beginRun, Line: p.printLine, Note: p.printRemark}
}

func (l Logs) writerOf(line cluster.OutputLine) io.Writer {
	if line.Stream == "stderr" {
		return l.Err
	}
	return l.Out
}

func (l Logs) printNote(run, text string) { fmt.Fprintf(l.Err, "cronclave: run %s: %s\n", run, text) }

type prefixed struct {
	Logs
	withJob bool
	begun   map[string]journal.Record // records of runs that have begun, by run id
	width   int                       // width of the longest text from originOf so far
}

// mostBegun is the maximum number of records in begun. It bounds the memory of a viewer that follows jobs for a long time.
const mostBegun = 1000

func (p *prefixed) beginRun(r journal.Record) {
	if len(p.begun) >= mostBegun {
		clear(p.begun)
	}
	p.begun[r.RunID] = r
	job := ""
	if p.withJob {
		job = " of job " + r.Job
	}
	fmt.Fprintf(p.Err, "==> run %s%s on %s\n", r.RunID, job, p.originOf(r.Replica, "", slotNumber(r)))
}

func (p *prefixed) printLine(l cluster.OutputLine) {
	fmt.Fprintln(p.writerOf(l), p.linePrefix(l.Time, p.originOf(l.Replica, l.Job, l.Slot))+l.Line)
}

// printRemark prints a remark about a run with the same prefix as the run's lines. A run that is not in begun gets a note with its id.
func (p *prefixed) printRemark(run, text string) {
	r, known := p.begun[run]
	if !known {
		p.printNote(run, text)
		return
	}
	fmt.Fprintln(p.Err, p.linePrefix(time.Time{}, p.originOf(r.Replica, r.Job, slotNumber(r)))+text)
}

// originOf returns the replica, the slot unless it is 0, and the job if withJob is set.
func (p *prefixed) originOf(replica, job string, slot int) string {
	if slot > 0 {
		replica = fmt.Sprintf("%s/%d", replica, slot)
	}
	if p.withJob && job != "" {
		replica += " " + job
	}
	return replica
}

// linePrefix returns the text in front of a line. Origins are padded to the width of the longest one so far.
func (p *prefixed) linePrefix(at time.Time, origin string) string {
	clock := "--:--:--"
	if !at.IsZero() {
		clock = Printer{Zone: p.Zone}.inZone(at).Format(time.TimeOnly)
	}
	p.width = max(p.width, utf8.RuneCountInString(origin))
	return clock + " " + origin + strings.Repeat(" ", p.width-utf8.RuneCountInString(origin)) + " | "
}

func slotNumber(r journal.Record) int {
	if r.Slot == nil {
		return 0
	}
	return *r.Slot
}
