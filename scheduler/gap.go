package scheduler

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// maxMissed bounds the records of ticks that were missed together: history keeps no more. One more is for all that were before them.
const maxMissed = 100

// maxCounted bounds how many ticks of a gap are counted, besides those that are recorded one by one: a job of each second has six
// hundred thousand in a week.
const maxCounted = 10_000

// gap is ticks of a job that were settled together, since no replica was there to decide them.
type gap struct {
	election.Settlement
	pause election.Pause
}

// together returns whether a settlement is a gap.
func together(of election.Settlement) bool { return !of.After.IsZero() }

// missedBecause is the outcome of ticks that no replica was there to decide.
func missedBecause(reason agenda.Reason) string { return string(Missed) + " " + string(reason) }

// verdict is that on one of the ticks. Those of paused time are none that were missed.
func (g gap) verdict(at time.Time) string {
	if g.pause.Covers(at) {
		return g.pause.Outcome
	}
	return g.Outcome
}

// missedBefore records a gap of a schedule that is the job's no more: which ticks it had is not known.
func (in *inspector) missedBefore(t *task, of election.Settlement) *receipt {
	r := tickRecord(t.Name, named{of.Tick, of.Tick}, of.Outcome, in.replica, of.At)
	r.Output = fmt.Appendf(nil, "one record for the ticks after %s and up to this one, of a schedule that was edited since", of.After.UTC().Format(time.RFC3339))
	written := in.recorder.add(r)
	return written
}

// recordGap records the newest ticks of a gap one by one, and those before them together.
func (in *inspector) recordGap(t *task, g gap) (written []*receipt) {
	failpoint("gap", &Run{Job: t.Name, Tick: g.Tick})
	n, paused, at, rest := 0, 0, t.Spec.UpTo(g.Tick), ""
	for ; t.Spec.ID(at).After(g.After) && n < maxMissed; at = t.Spec.Prev(at) {
		if g.pause.Covers(at) {
			paused++
		}
		w := in.recorder.add(tickRecord(t.Name, named{t.Spec.ID(at), at}, g.verdict(at), in.replica, g.At))
		written = append(written, w)
		n++
	}
	if t.Spec.ID(at).After(g.After) {
		var w *receipt
		w, rest = in.summarize(t, g, at)
		written = append(written, w)
	}
	if paused == n {
		in.log.Info("ticks not run, as the job was paused", "job", t.Name, "after", g.After, "through", g.Tick, "recorded", n, "together", rest)
		return written
	}
	in.log.Warn("ticks missed", "job", t.Name, "after", g.After, "through", g.Tick, "outcome", g.Outcome, "recorded", n, "paused", paused, "together", rest)
	return written
}

// summarize records together the ticks of a gap up to one, none of which ran. The record is that of the first of them, which is the same on every
// replica and however far the gap has come, and its output has their number.
func (in *inspector) summarize(t *task, g gap, newest time.Time) (written *receipt, summary string) {
	n := 0
	for at := newest; t.Spec.ID(at).After(g.After) && n < maxCounted; at = t.Spec.Prev(at) {
		n++
	}
	more := ""
	if n == maxCounted {
		more = "at least "
	}
	first := t.Spec.After(g.After)
	r := tickRecord(t.Name, named{t.Spec.ID(first), first}, g.verdict(newest), in.replica, g.At)
	summary = fmt.Sprintf("%s%d ticks, from %s to %s", more, n, first.UTC().Format(time.RFC3339), newest.UTC().Format(time.RFC3339))
	if n > 1 {
		r.Ticks = n
		r.Output = []byte("one record for " + summary)
	}
	written = in.recorder.add(r)
	return written, summary
}
