package cluster

import (
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

// explainPause adds a line about the newest pause and its effect, if matters is set.
func (s *story) explainPause(matters bool, effect string) {
	if p := s.state.Pause; matters && !p.From.IsZero() {
		s.sayPause(p, p.On(s.state.Now), effect)
	}
}

// sayPause adds a line about a pause, with its effect if the pause is still on. If a pause is over and has no Until, its end is unknown.
func (s *story) sayPause(p election.Pause, on bool, effect string) {
	by, until, text := "", "", ""
	if p.By != "" {
		by = "by " + p.By + " "
	}
	if on && !p.Until.IsZero() {
		until = ", until " + s.formatTime(p.Until)
	}
	switch {
	case on:
		text = "is paused " + by + "since " + s.formatTime(p.From) + until
	case p.Until.IsZero():
		text = "was paused " + by + "at " + s.formatTime(p.From) + ", its end is not known"
	default:
		text = "was paused " + by + "from " + s.formatTime(p.From) + " to " + s.formatTime(p.Until)
	}
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	if on {
		text += ": " + effect
	}
	s.addLine("job %s %s", s.Job, text)
}

// explainPaused names the pause that settled a tick: the newest one at the time when a replica claimed the tick. The lock has only the user of the last change
// to the pause. The audit log also has the users of earlier changes.
func (s *story) explainPaused(r journal.Record) {
	p, newest := s.state.Pause, canSettle(s.state.Pause, r)
	logged, note := s.loggedPause(r)
	switch {
	case newest && logged.Covers(p.From): // the same pause, because an act is logged before it is carried out
		if logged.By == p.By {
			note = ""
		}
		p.By, p.Reason = logged.By, logged.Reason
	case newest:
		note = s.unreadableText()
	case !logged.From.IsZero():
		p = s.boundPause(logged)
	case s.actsErr != nil:
		s.addLine("%s", s.unreadableText())
		return
	default:
		s.addLine("the audit log has no pause of job %s at that time", s.Job)
		return
	}
	s.sayPause(p, newest && p.On(s.state.Now), "its ticks are skipped")
	if note != "" {
		s.addLine("%s", note)
	}
}

// unreadableText returns a line if the audit log cannot be read; "" if it can.
func (s *story) unreadableText() string {
	if s.actsErr == nil {
		return ""
	}
	return "the audit log cannot be read: " + strings.TrimPrefix(s.actsErr.Error(), "read the audit log: ")
}

// boundPause removes the end of an earlier pause if that end is too late. The audit log may lack the act that ended the pause.
func (s *story) boundPause(p election.Pause) election.Pause {
	latest := s.state.Now
	if next := s.state.Pause.From; next.After(p.From) {
		latest = next
	}
	if p.Until.After(latest) {
		p.Until = time.Time{}
	}
	return p
}

// canSettle reports whether a pause can have settled the tick of a record: it covers the tick, or the time at which the tick was settled.
func canSettle(p election.Pause, r journal.Record) bool {
	return p.Covers(r.Tick) || p.Covers(r.Finished)
}

// needsActs reports whether a pause skipped the tick. The audit log is then needed, because the lock has only the newest pause, with the user of its last
// change.
func (s *story) needsActs() bool {
	return slices.ContainsFunc(s.past, func(r journal.Record) bool { return s.isOf(r) && r.Reason == "paused" })
}

// loggedPause returns the pause that settled the tick of a record, according to the audit log; the zero Pause if the log has none. An act on many jobs names
// only some of them. Acts that name the job take precedence over such acts, unless one of these is newer. In that case note says that the pause is not certain.
func (s *story) loggedPause(r journal.Record) (p election.Pause, note string) {
	p = s.settledBy(r, s.isNamed)
	newer := func(a journal.Act) bool {
		return s.mayMean(a) && !s.isNamed(a) && a.Time.After(p.From) && !a.Time.After(r.Finished)
	}
	if !p.From.IsZero() && !slices.ContainsFunc(s.acts, newer) {
		return p, ""
	}
	if possible := s.settledBy(r, s.mayMean); !possible.From.IsZero() {
		return possible, "not certain: the audit log names only the first 20 jobs of an act"
	}
	return p, ""
}

// settledBy returns the pause that settled the tick of a record, according to the acts for which about returns true. It is the newest pause at the claim of the
// tick, which may be earlier than the record.
func (s *story) settledBy(r journal.Record, about func(journal.Act) bool) election.Pause {
	for _, at := range []time.Time{r.Finished, r.Tick} {
		if p := pauseAt(s.acts, about, at); canSettle(p, r) {
			return p
		}
	}
	return election.Pause{}
}

// isNamed reports whether an act names the job.
func (s *story) isNamed(a journal.Act) bool { return slices.Contains(a.Jobs, s.Job) }

// mayMean reports whether an act names the job, or may concern it without naming it. An act names only the first of its jobs, in alphabetical order.
func (s *story) mayMean(a journal.Act) bool {
	return s.isNamed(a) || a.JobCount > len(a.Jobs) && len(a.Jobs) > 0 && s.Job > a.Jobs[len(a.Jobs)-1]
}

// pauseAt returns the newest pause that had begun by the time at. It has the user and the reason of that time, and the end that later acts gave it.
func pauseAt(acts []journal.Act, about func(journal.Act) bool, at time.Time) (p election.Pause) {
	for _, a := range acts {
		on, later := p.On(a.Time), a.Time.After(at)
		switch {
		case !about(a):
		case later && !on:
			return p
		case a.Kind == journal.ActResume && on:
			p.Until = a.Time
		case a.Kind == journal.ActPause:
			p = carriedOn(p, a, on, later)
		}
	}
	return p
}

// carriedOn returns a pause after one more act of kind pause. A pause that is on keeps its start.
func carriedOn(p election.Pause, a journal.Act, on, later bool) election.Pause {
	if !on {
		p = election.Pause{From: a.Time, Outcome: scheduler.SkippedPaused}
	}
	if !later {
		p.By, p.Reason = a.By, a.Reason
	}
	if p.Until = (time.Time{}); a.Until != nil {
		p.Until = *a.Until
	}
	return p
}
