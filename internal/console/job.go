package console

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/cronclave/cronclave/internal/cluster"
)

// factIndent is the column at which the values of a job's facts begin, after their names.
const factIndent = 13

// Job prints all details of one job in a status, and the problems of the cluster.
func (p Printer) Job(st *cluster.Status, j cluster.Job) {
	p.printLine(jobMark(j), fmt.Sprintf("job %s: %s", p.cutText(j.Name, 64), lastText(st, j.Last)))
	p.printProblems(st)
	if len(st.Problems) > 0 {
		fmt.Fprintln(p.Out)
	}
	fact := func(name, text string) {
		for n, line := range p.splitLines(text, factIndent) {
			if n > 0 {
				name = ""
			}
			fmt.Fprintf(p.Out, "  %-10s %s\n", name, line)
		}
	}
	fact("schedule", fmt.Sprintf("%s (%s)", Scheduled(j.Schedule, j.After), j.Timezone))
	if j.Next != nil {
		fact("next", fmt.Sprintf("%s, %s", p.formatTime(*j.Next), inText(st.Now, *j.Next)))
	} else {
		fact("next", nextText(st, j))
	}
	if j.Paused {
		fact("paused", pauseOf(p, st, j))
	}
	if len(j.Tags) > 0 {
		fact("tags", strings.Join(j.Tags, ", "))
	}
	if len(j.Where) > 0 {
		fact("where", cluster.FormatLabels(j.Where))
	}
	fact("slots", fmt.Sprintf("%d of %d held", len(j.Holders), max(j.Parallel, 1)))
	for _, h := range j.Holders {
		tick := "outside the schedule"
		if h.Tick != nil {
			tick = "tick " + p.formatTime(*h.Tick)
		}
		fact("", fmt.Sprintf("%s/%d: %s, token %d, lease until %s unless it is renewed", h.Replica, h.Slot, tick, h.Token, p.formatTime(h.Expires)))
	}
	for _, pool := range st.Pools {
		if pool.Name == j.Pool {
			fact("pool", fmt.Sprintf("%s: %d of %d slots held, %d waiting", pool.Name, len(pool.Holders), pool.Slots, pool.Waiters))
		}
	}
	p.printRecent(st, j)
	if st.Settings != nil {
		p.printSettings(st.Settings)
	}
}

// printRecent prints the latest runs in brief. `cronclave history` prints more about each.
func (p Printer) printRecent(st *cluster.Status, j cluster.Job) {
	if len(j.Recent) == 0 {
		return
	}
	fmt.Fprintln(p.Out)
	t := newTable("BEGAN", "TICK", "REPLICA", "OUTCOME", "DURATION", "WHY")
	for _, r := range j.Recent {
		tick := "-"
		if !r.Tick.IsZero() {
			tick = p.formatTime(r.Tick)
		}
		t.addRow(markOf(r.Outcome), agoText(st.Now, r.When()), tick, p.cutText(cmp.Or(r.Replica, "-"), 14), markOf(r.Outcome).sign+" "+r.Outcome, durationText(r), p.cutText(Why(r), 24))
	}
	t.print(p)
}

// pauseOf describes the pause of a job: its user, its beginning, its end and its reason.
func pauseOf(p Printer, st *cluster.Status, j cluster.Job) string {
	until := "it is resumed"
	if j.PausedUntil != nil {
		until = p.formatTime(*j.PausedUntil)
	}
	by := ""
	if j.PausedBy != "" {
		by = "by " + p.cutText(j.PausedBy, 24) + " "
	}
	text := by + "since " + Span(st.Now.Sub(*j.PausedSince)) + ", until " + until
	if j.PausedReason != "" {
		text += ": " + j.PausedReason
	}
	return text
}
