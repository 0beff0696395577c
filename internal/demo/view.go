package demo

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config"
)

type view struct {
	out    io.Writer
	colour bool
	zone   *time.Location // zone of printed times
	job    int            // width of the column of jobs
}

// colour is the escape code of a colour or an attribute of text.
type colour string

const (
	plain  colour = ""
	bold   colour = "1"
	faint  colour = "2"
	red    colour = "1;31"
	green  colour = "32"
	yellow colour = "33"
	cyan   colour = "36"
)

func newView(out io.Writer, colours bool, zone *time.Location, jobs []*config.Job) *view {
	const widest = 24
	v := &view{out: out, zone: zone, job: len("JOB"), colour: colours}
	for _, j := range jobs {
		v.job = min(max(v.job, len(j.Name)), widest)
	}
	return v
}

func (v *view) paintText(c colour, text string) string {
	if !v.colour || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// printLine prints a line that is not an event.
func (v *view) printLine(c colour, format string, args ...any) {
	fmt.Fprintln(v.out, v.paintText(c, fmt.Sprintf(format, args...)))
}

func (v *view) printHeader() {
	v.printLine(bold, "%s", v.formatColumns("TIME", "JOB", "TICK", "REPLICA", "SLOT", "TOKEN", "OUTCOME"))
}

// formatColumns formats an event as a line. With short names of jobs, the outcome begins after 61 columns.
func (v *view) formatColumns(at, job, tick, replica, slot, token, outcome string) string {
	line := fmt.Sprintf("%-8s  %-*s  %-8s  %-7s  %-4s  %-16s  %s", at, v.job, cutTo(job, v.job), tick, replica, slot, token, outcome)
	return strings.TrimRight(line, " ")
}

// printRun prints an event of a run. remark is "", or begins with an arrow.
func (v *view) printRun(at time.Time, r *run, outcome, remark string) {
	slot, token := strconv.Itoa(r.Slot), strconv.FormatInt(r.Token, 10)
	if r.Token == 0 { // a tick without a run has no token
		slot, token = "-", "-"
	}
	text := v.paintText(colourOf(outcome), outcome)
	if remark != "" {
		text += "  " + v.paintText(bold, remark)
	}
	fmt.Fprintln(v.out, v.formatColumns(v.localClock(at), r.Job, v.localClock(r.Tick), r.Replica, slot, token, text))
}

// printNote prints an event that is not about one run.
func (v *view) printNote(at time.Time, c colour, format string, args ...any) {
	text := cutTo(fmt.Sprintf(format, args...), 160)
	fmt.Fprintf(v.out, "%-8s  %-*s  %s\n", v.localClock(at), v.job, "--", v.paintText(c, text))
}

func (v *view) localClock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.In(v.zone).Format("15:04:05")
}

// widestOutcome is the maximum width of an outcome, so that a line has at most 100 columns.
const widestOutcome = 28

func colourOf(outcome string) colour {
	switch word, _, _ := strings.Cut(outcome, " "); word {
	case "ok":
		return green
	case "running":
		return cyan
	case "abandoned", "skipped", "missed", "canceled":
		return yellow
	}
	return red
}

func cutTo(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return s
}
