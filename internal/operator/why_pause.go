package operator

import (
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

// explainPause adds the newest pause and its effect, if it matters.
func (s *story) explainPause(matters bool, effect string) {
	if p := s.state.Pause; matters && !p.From.IsZero() {
		s.sayPause(p, p.On(s.state.Now), effect)
	}
}

// sayPause adds a pause, and its effect if it is still on. The end of a pause that is over is unknown if it has no Until.
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

// explainPaused names the pause that settled a tick: the newest one at the time when a replica claimed the tick. The lock has the user of the pause's last
// change, the audit log the users of earlier changes too.
func (s *story) explainPaused(r journal.Record) {
	p, newest := s.state.Pause, canSettle(s.state.Pause, r)
	logged, note := s.loggedPause(r)
	switch {
	case newest && logged.Covers(p.From): // the same pause: acts are logged before they are done
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

// unreadableText returns why the audit log cannot be read; "" if it can.
func (s *story) unreadableText() string {
	if s.actsErr == nil {
		return ""
	}
	return "the audit log cannot be read: " + strings.TrimPrefix(s.actsErr.Error(), "read the audit log: ")
}

// boundPause removes the end of an earlier pause if it cannot be right, because the log may lack the act that ended the pause.
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

// canSettle reports whether a pause can have settled the tick of a record: it covers the tick, or the time when the tick was claimed.
func canSettle(p election.Pause, r journal.Record) bool {
	return p.Covers(r.Tick) || p.Covers(r.Finished)
}

// needsActs reports whether a pause skipped the tick. The lock has only the newest pause, with the user of its last change.
func (s *story) needsActs() bool {
	return slices.ContainsFunc(s.past, func(r journal.Record) bool { return s.isOf(r) && r.Reason == "paused" })
}

// loggedPause returns the pause, according to the audit log, that settled the tick of a record; the zero Pause if the log has none. Acts that name the job
// take precedence over acts on so many jobs that the log names only some, unless one of these is newer.
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

// settledBy returns the pause, according to some acts, that settled the tick of a record: the newest one when the tick was claimed, which may be earlier than
// the record.
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

// mayMean reports whether an act names the job, or may omit it: an act names only the first of its jobs, which are sorted.
func (s *story) mayMean(a journal.Act) bool {
	return s.isNamed(a) || a.JobCount > len(a.Jobs) && len(a.Jobs) > 0 && s.Job > a.Jobs[len(a.Jobs)-1]
}

// pauseAt returns the newest pause that had begun by an instant, with the user and the reason of that time, and with the end that later acts gave it.
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

// carriedOn returns a pause after one more act. If it is on, it keeps its start.
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
