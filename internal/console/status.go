package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// Status prints a cluster: its problems first, then its replicas, jobs, pools and locks.
func (p Printer) Status(st *cluster.Status) {
	p.printSummary(st)
	p.printProblems(st)
	p.printPauses(st)
	p.printReplicas(st)
	p.printJobs(st)
	p.printLocks(st)
	p.printRedis(st)
}

func (p Printer) printSummary(st *cluster.Status) {
	leader, up := "no leader", 0
	if st.Leader != nil {
		leader = "leader " + p.cutText(st.Leader.Replica, 12)
	}
	for _, r := range st.Replicas {
		if r.State == cluster.ReplicaUp {
			up++
		}
	}
	jobs := Count(st.JobCount, "job")
	if len(st.Jobs) < st.JobCount {
		jobs = fmt.Sprintf("%d of %s", len(st.Jobs), jobs)
	}
	fmt.Fprintf(p.Out, "namespace %s at %s: %s up, %s, %s\n", p.cutText(st.Namespace, 12), p.formatTime(st.Now), Count(up, "replica"), leader, jobs)
}

// printProblems prints the problems and since when each one exists.
func (p Printer) printProblems(st *cluster.Status) {
	if len(st.Problems) > 0 {
		fmt.Fprintln(p.Out)
	}
	list := st.Grouped()
	if p.Wide {
		list = st.Problems
	}
	for _, problem := range list {
		text := problem.Message
		switch {
		case problem.Since == nil:
		case problem.Failures != nil && problem.Failures.Count > 1:
			text = fmt.Sprintf("%s (for %s)", text, Span(st.Now.Sub(*problem.Since)))
		default:
			text = fmt.Sprintf("%s (%s)", text, agoText(st.Now, *problem.Since))
		}
		p.printItem(levels[problem.Level], text)
	}
}

// printPauses prints the paused jobs with the reasons for their pauses.
func (p Printer) printPauses(st *cluster.Status) {
	first := len(st.Problems) == 0
	for _, j := range st.Jobs {
		if j.Paused && first {
			fmt.Fprintln(p.Out)
			first = false
		}
		if j.Paused {
			p.printItem(notRun, fmt.Sprintf("job %s is paused %s", j.Name, pauseOf(p, st, j)))
		}
	}
}

func (p Printer) printReplicas(st *cluster.Status) {
	if len(st.Replicas)+len(st.Lost) == 0 {
		return
	}
	fmt.Fprintln(p.Out)
	title := []string{"REPLICA", "STATE", "SEEN", "STARTED", "RUNNING", "CLOCK", "CONFIG", "VERSION"}
	if p.Wide {
		title = append(title, "LEASE MARGIN", "ZONE DATA")
	}
	t := newTable(title...)
	for _, r := range st.Replicas {
		m := plain
		if r.State != cluster.ReplicaUp || r.LowMargin() {
			m = warning
		}
		cells := []string{p.cutText(r.Name, 21), string(r.State), agoText(st.Now, r.Seen), agoText(st.Now, r.Started), p.cutText(r.Load(), 10), p.cutText(r.Clock().String(), 12),
			p.cutText(r.ConfigDigest, 9), p.cutText(r.Version, 10)}
		if p.Wide {
			cells = append(cells, marginText(r.LeaseMargin), cmp.Or(r.ZoneData, "-"))
		}
		t.addRow(m, cells...)
	}
	for _, l := range st.Lost {
		t.addRow(bad, append([]string{p.cutText(l.Name, 21), "lost", agoText(st.Now, l.Seen)}, slices.Repeat([]string{"-"}, len(title)-3)...)...)
	}
	t.print(p)
}

// marginText formats the smallest lease margin that a replica has measured.
func marginText(m *journal.LeaseMargin) string {
	if m == nil {
		return "-"
	}
	return m.String()
}

func (p Printer) printJobs(st *cluster.Status) {
	if len(st.Jobs) == 0 {
		return
	}
	fmt.Fprintln(p.Out)
	title := []string{"JOB", "LAST", fmt.Sprintf("LAST %d", cluster.RecentRuns), "NEXT", "RUNS ON"}
	if p.Wide {
		title = append(title, "SCHEDULE", "WHY")
	}
	t := newTable(title...)
	for _, j := range st.Jobs {
		cells := []string{p.cutText(j.Name, 28), p.cutText(lastText(st, j.Last), 26), signStrip(j.Recent), p.cutText(nextText(st, j), 16), p.cutText(heldBy(j.Holders), 12)}
		if p.Wide {
			cells = append(cells, Scheduled(j.Schedule, j.After), whyText(j.Last))
		}
		t.addRow(jobMark(j), cells...)
	}
	t.print(p)
}

// jobMark returns the mark of a job that needs attention: its last outcome was not ok, or it is paused.
func jobMark(j cluster.Job) mark {
	switch {
	case j.LastEnd != nil && markOf(j.LastEnd.Outcome) != good:
		return markOf(j.LastEnd.Outcome)
	case j.Paused:
		return notRun
	}
	return plain
}

func lastText(st *cluster.Status, r *journal.Record) string {
	if r == nil {
		return "-"
	}
	when := r.Finished
	if when.IsZero() {
		when = r.Started
	}
	text := fmt.Sprintf("%s %s %s", markOf(r.Outcome).sign, r.Outcome, agoText(st.Now, when))
	switch {
	case r.Retried:
		text += ", tried again"
	case r.FailedTries > 0:
		text += fmt.Sprintf(", tried %dx", r.FailedTries+1)
	}
	return text
}

func nextText(st *cluster.Status, j cluster.Job) string {
	switch {
	case !j.Enabled:
		return "not enabled"
	case j.Paused && j.PausedUntil == nil:
		return "paused"
	case j.Paused:
		return "paused, " + Span(j.PausedUntil.Sub(st.Now)) + " left"
	case j.Next != nil:
		return inText(st.Now, *j.Next)
	case len(j.After) > 0:
		return "after " + strings.Join(j.After, ", ")
	}
	return "-"
}

func heldBy(holders []cluster.Holder) string {
	var names []string
	for _, h := range holders {
		names = append(names, fmt.Sprintf("%s/%d", h.Replica, h.Slot))
	}
	if names == nil {
		return "-"
	}
	return strings.Join(names, ", ")
}

// Scheduled returns a short text about when a job runs: its schedule, or the jobs that it follows.
func Scheduled(schedule, after []string) string {
	if len(after) > 0 {
		return "after " + strings.Join(after, ", ")
	}
	return strings.Join(schedule, " | ")
}

func whyText(r *journal.Record) string {
	if r == nil {
		return "-"
	}
	return Why(*r)
}

// Count formats a number with a noun. The noun is in the plural unless the number is 1.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
