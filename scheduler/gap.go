package scheduler

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// maxMissed is the maximum number of ticks of a gap with a record each, because the history keeps no more records. One more record stands for all
// earlier ticks.
const maxMissed = 100

// maxCounted is the maximum to which the earlier ticks of a gap are counted, because counting takes time: a job that runs every second has 600,000
// ticks in a week.
const maxCounted = 10_000

// A gap is a range of ticks of a job that were settled together, because no replica decided them in time.
type gap struct {
	election.Settlement
	pause election.Pause
}

// isGap reports whether a settlement stands for a range of ticks.
func isGap(of election.Settlement) bool { return !of.After.IsZero() }

// missedBecause returns the outcome and the reason of missed ticks, in the form "missed REASON".
func missedBecause(reason agenda.Reason) string { return string(Missed) + " " + string(reason) }

// verdictAt returns the outcome and the reason of one tick of the gap. A tick in a pause has the outcome of the pause, because it was not missed.
func (g gap) verdictAt(at time.Time) string {
	if g.pause.Covers(at) {
		return g.pause.Outcome
	}
	return g.Outcome
}

// missedBefore records a gap of a former schedule of the job. This replica cannot compute the ticks of that schedule, so there is one record for all.
func (in *inspector) missedBefore(t *task, of election.Settlement) *receipt {
	r := tickRecord(t.Name, named{of.Tick, of.Tick}, of.Outcome, in.replica, of.At)
	r.Output = fmt.Appendf(nil, "one record for the ticks after %s and up to this one, of a schedule that was edited since", of.After.UTC().Format(time.RFC3339))
	written := in.recorder.add(r)
	return written
}

// recordGap writes one record for each of the newest ticks of a gap, and one record for all earlier ticks.
func (in *inspector) recordGap(t *task, g gap) (written []*receipt) {
	failpoint("gap", &Run{Job: t.Name, Tick: g.Tick})
	n, paused, at, rest := 0, 0, t.Spec.UpTo(g.Tick), ""
	for ; t.Spec.ID(at).After(g.After) && n < maxMissed; at = t.Spec.Prev(at) {
		if g.pause.Covers(at) {
			paused++
		}
		w := in.recorder.add(tickRecord(t.Name, named{t.Spec.ID(at), at}, g.verdictAt(at), in.replica, g.At))
		written = append(written, w)
		n++
	}
	if t.Spec.ID(at).After(g.After) {
		var w *receipt
		w, rest = in.recordSummary(t, g, at)
		written = append(written, w)
	}
	if paused == n {
		in.log.Info("ticks not run, as the job was paused", "job", t.Name, "after", g.After, "through", g.Tick, "recorded", n, "together", rest)
		return written
	}
	in.log.Warn("ticks missed", "job", t.Name, "after", g.After, "through", g.Tick, "outcome", g.Outcome, "recorded", n, "paused", paused, "together", rest)
	return written
}

// recordSummary writes one record for the ticks of a gap up to newest. The record has the id of the first tick, so that it is the same on every
// replica and stays the same while the gap grows. Its output has the number of ticks.
func (in *inspector) recordSummary(t *task, g gap, newest time.Time) (written *receipt, summary string) {
	n := 0
	for at := newest; t.Spec.ID(at).After(g.After) && n < maxCounted; at = t.Spec.Prev(at) {
		n++
	}
	more := ""
	if n == maxCounted {
		more = "at least "
	}
	first := t.Spec.After(g.After)
	r := tickRecord(t.Name, named{t.Spec.ID(first), first}, g.verdictAt(newest), in.replica, g.At)
	summary = fmt.Sprintf("%s%d ticks, from %s to %s", more, n, first.UTC().Format(time.RFC3339), newest.UTC().Format(time.RFC3339))
	if n > 1 {
		r.Ticks = n
		r.Output = []byte("one record for " + summary)
	}
	written = in.recorder.add(r)
	return written, summary
}
