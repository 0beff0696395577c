package console

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

// Logs prints the output of runs while it is written. Lines of stdout go to Out; lines of stderr and remarks go to Err.
type Logs struct {
	Out, Err io.Writer
	Zone     *time.Location // of the times before lines
}

// Bare returns a viewer that prints only the lines.
func (l Logs) Bare() operator.Viewer {
	return operator.Viewer{Note: l.printNote, Line: func(line operator.OutputLine) { fmt.Fprintln(l.writerOf(line), line.Line) }}
}

// JSON returns a viewer that prints each line as a line of JSON.
func (l Logs) JSON() operator.Viewer {
	return operator.Viewer{Note: l.printNote, Line: func(line operator.OutputLine) {
		_ = json.NewEncoder(l.Out).Encode(line) // ignored as for all output: the reader is gone
	}}
}

// Headed returns a viewer that prints the lines, and a heading before the output of another run.
func (l Logs) Headed() operator.Viewer {
	current, v := "", l.Bare()
	show := v.Line
	v.Line = func(line operator.OutputLine) {
		if line.RunID != current {
			fmt.Fprintf(l.Err, "==> run %s\n", line.RunID)
			current = line.RunID
		}
		show(line)
	}
	return v
}

// Prefixed returns a viewer that prints each line with its time and its replica, and with the job if withJob is set. Each run gets a heading on Err
// when it begins.
func (l Logs) Prefixed(withJob bool) operator.Viewer {
	p := &prefixed{Logs: l, withJob: withJob, begun: map[string]journal.Record{}}
	return operator.Viewer{Begin: p.beginRun, Line: p.printLine, Note: p.printRemark}
}

func (l Logs) writerOf(line operator.OutputLine) io.Writer {
	if line.Stream == "stderr" {
		return l.Err
	}
	return l.Out
}

func (l Logs) printNote(run, text string) { fmt.Fprintf(l.Err, "cronclave: run %s: %s\n", run, text) }

// prefixed prints lines of several runs.
type prefixed struct {
	Logs
	withJob bool
	begun   map[string]journal.Record // by run id
	width   int                       // of the longest origin so far
}

// mostBegun caps the runs whose remarks can be shown with an origin.
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

func (p *prefixed) printLine(l operator.OutputLine) {
	fmt.Fprintln(p.writerOf(l), p.linePrefix(l.Time, p.originOf(l.Replica, l.Job, l.Slot))+l.Line)
}

// printRemark prints a remark on a run in the format of its lines.
func (p *prefixed) printRemark(run, text string) {
	r, known := p.begun[run]
	if !known {
		p.printNote(run, text)
		return
	}
	fmt.Fprintln(p.Err, p.linePrefix(time.Time{}, p.originOf(r.Replica, r.Job, slotNumber(r)))+text)
}

// originOf names the replica, the slot unless it is the first, and the job.
func (p *prefixed) originOf(replica, job string, slot int) string {
	if slot > 0 {
		replica = fmt.Sprintf("%s/%d", replica, slot)
	}
	if p.withJob && job != "" {
		replica += " " + job
	}
	return replica
}

// linePrefix returns the text before a line. Origins are padded to the longest so far.
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
