package console

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// Acts prints entries of the audit log. Times are relative to now.
func (p Printer) Acts(now time.Time, acts []journal.Act) {
	t := newTable("TIME", "USER", "ACT", "JOBS", "REASON")
	for _, a := range acts {
		t.addRow(plain, agoText(now, a.Time), p.cutText(a.By, 20), a.Kind, p.cutText(ActJobs(a), 40), p.cutText(cmp.Or(a.Reason, "-"), 20))
	}
	t.print(p)
}

// ActJobs returns the jobs of an audit entry, with the run, the tick or the end of the pause that it is about. An entry about a replica has no jobs.
func ActJobs(a journal.Act) string {
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

// Unchanged describes an audit entry without effect. If several such acts share the entry, the text contains their number.
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

// pauseEnd returns the end of a pause and its reason.
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
