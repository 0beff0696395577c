package console

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// Logs prints the output of runs as they write it. Lines of stdout go to Out. Lines of stderr and remarks about the output go to Err.
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
		_ = json.NewEncoder(l.Out).Encode(line) // errors are ignored as for all output: its reader has gone
	}}
}

// Headed returns a viewer that prints lines unchanged. If a line belongs to another run than the line before, a heading comes first.
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

// prefixed prints the lines of several runs.
type prefixed struct {
	Logs
	withJob bool
	begun   map[string]journal.Record // records of runs that have begun, by run id
	width   int                       // width of the longest origin so far
}

// mostBegun is the maximum number of runs in prefixed.begun.
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
