package scheduler

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/election"
)

// maxMissed bounds the records of ticks that were missed together: history keeps no more. One more is for all that were before them.
const maxMissed = 100

// maxCounted bounds how many ticks of a gap are counted, besides those that are recorded one by one: a job of each second has six
// hundred thousand in a week.
const maxCounted = 10_000

// gap is ticks of a job that were settled together, since nobody was there to decide them.
type gap struct {
	election.Settlement
	pause election.Pause
}

// together tells a settlement that is a gap.
func together(of election.Settlement) bool { return !of.After.IsZero() }

// missedBecause is the outcome of ticks that nobody was there to decide.
func missedBecause(reason string) string { return string(Missed) + " " + reason }

// verdict is that on one of the ticks. Those of paused time are none that were missed.
func (g gap) verdict(at time.Time) string {
	if g.pause.Covers(at) {
		return g.pause.Outcome
	}
	return g.Outcome
}

// missed records the ticks that were settled together, by this replica or another, and of which nobody has told yet: who settled them may not have lived
// to. The record of a tick is the same whoever writes it.
func (s *Scheduler) missed(t *task, st election.State, now time.Time) {
	for _, of := range st.Settled {
		switch {
		case !together(of) || t.tells(of.Tick):
		case of.Schedule != t.digest():
			s.toTell(t, of.Tick, now, s.missedBefore(t, of))
		default:
			s.toTell(t, of.Tick, now, s.recordGap(t, gap{of, st.Pause})...)
		}
	}
}

// missedBefore records a gap of a schedule that is the job's no more: which ticks it had is not known.
func (s *Scheduler) missedBefore(t *task, of election.Settlement) *receipt {
	r := tickRecord(t.Name, of.Tick, of.Outcome, s.cfg.Replica, of.At)
	r.Output = fmt.Appendf(nil, "one record for the ticks after %s and up to this one, of a schedule that was edited since", of.After.UTC().Format(time.RFC3339))
	written, _ := s.exec.recorder.add(r)
	return written
}

// recordGap records the newest ticks of a gap one by one, and those before them together.
func (s *Scheduler) recordGap(t *task, g gap) (written []*receipt) {
	failpoint("gap", &Run{Job: t.Name, Tick: g.Tick})
	n, paused, at, rest := 0, 0, g.Tick, ""
	for ; at.After(g.After) && n < maxMissed; at = t.spec.Prev(at) {
		if g.pause.Covers(at) {
			paused++
		}
		w, _ := s.exec.recorder.add(tickRecord(t.Name, at, g.verdict(at), s.cfg.Replica, g.At))
		written = append(written, w)
		n++
	}
	if at.After(g.After) {
		var w *receipt
		w, rest = s.summarize(t, g, at)
		written = append(written, w)
	}
	if paused == n {
		s.log.Info("ticks not run, as the job was paused", "job", t.Name, "after", g.After, "through", g.Tick, "recorded", n, "together", rest)
		return written
	}
	s.log.Warn("ticks missed", "job", t.Name, "after", g.After, "through", g.Tick, "outcome", g.Outcome, "recorded", n, "paused", paused, "together", rest)
	return written
}

// summarize records together the ticks of a gap up to one, none of which ran: the record is that of the first of them, which is the
// same whoever writes it and however far the gap has come, and its output has their number.
func (s *Scheduler) summarize(t *task, g gap, newest time.Time) (written *receipt, summary string) {
	n := 0
	for at := newest; at.After(g.After) && n < maxCounted; at = t.spec.Prev(at) {
		n++
	}
	more := ""
	if n == maxCounted {
		more = "at least "
	}
	first := t.spec.Next(g.After)
	r := tickRecord(t.Name, first, g.verdict(newest), s.cfg.Replica, g.At)
	summary = fmt.Sprintf("%s%d ticks, from %s to %s", more, n, first.UTC().Format(time.RFC3339), newest.UTC().Format(time.RFC3339))
	if n > 1 {
		r.Ticks = n
		r.Output = []byte("one record for " + summary)
	}
	written, _ = s.exec.recorder.add(r)
	return written, summary
}
