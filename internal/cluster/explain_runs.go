package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/run"
)

func (s *explainer) explainRuns() {
	for _, r := range s.past {
		if s.isOf(r) {
			s.Runs = append(s.Runs, r)
		}
	}
	slices.SortStableFunc(s.Runs, func(a, b journal.Record) int {
		return cmp.Or(cmp.Compare(slotNumber(a), slotNumber(b)), cmp.Compare(a.Attempt, b.Attempt), endOf(a).Compare(endOf(b)))
	})
	for i, r := range s.Runs {
		switch {
		case r.Outcome == journal.OutcomeRunning:
			s.explainRunning(r)
		case r.Started.IsZero():
			s.addLine("%s%s: %s", r.Outcome, grantText(r), ReasonText(r))
			s.explainCause(r)
		default:
			s.addLine("ran%s: %s", grantText(r), s.endText(r))
			s.explainDetail(r)
		}
		if !r.Retried {
			s.explainOrigin(i)
		}
	}
	s.Phase = s.phaseOfRuns()
}

// phaseOfRuns returns the phase according to the records. It is running if any run still has its lease. Otherwise, it is unknown if a last attempt has no
// recorded end.
func (s *explainer) phaseOfRuns() Phase {
	running := func(r journal.Record) bool { return r.Outcome == journal.OutcomeRunning }
	switch {
	case len(s.Runs) == 0:
		return PhaseUnknown
	case slices.ContainsFunc(s.Runs, func(r journal.Record) bool { return running(r) && s.hasLease(r) }):
		return PhaseRunning
	case slices.ContainsFunc(s.lastRuns(), running):
		return PhaseUnknown
	}
	return PhaseOver
}

// lastRuns returns the records that no later attempt follows.
func (s *explainer) lastRuns() []journal.Record {
	return slices.DeleteFunc(slices.Clone(s.Runs), func(r journal.Record) bool {
		return slices.ContainsFunc(s.Runs, func(later journal.Record) bool { return isLaterAttempt(later, r) })
	})
}

// isLaterAttempt reports whether later records an attempt that follows the attempt of r. Attempts follow each other in one slot. A recovery may follow in
// another slot, because it takes the lowest free slot, and a tick of a job with recoveries never has two runs at once. Each manual run counts its attempts from
// 1, so the tokens must be equal.
func isLaterAttempt(later, r journal.Record) bool {
	switch {
	case isManual(later) != isManual(r) || later.Attempt <= r.Attempt:
		return false
	case isManual(r):
		return later.Token == r.Token
	}
	return later.Trigger == "recovery" || slotNumber(later) == slotNumber(r)
}

func isManual(r journal.Record) bool { return r.Trigger == "manual" }

func (s *explainer) hasLease(r journal.Record) bool {
	return slices.ContainsFunc(s.state.Running, func(h election.Run) bool { return h.ID == r.RunID })
}

// explainRunning explains a run without an end in the history. The lock shows whether the run still has its lease.
func (s *explainer) explainRunning(r journal.Record) {
	if s.hasLease(r) {
		s.addLine("runs%s, since %s", grantText(r), s.formatTime(r.Started))
		return
	}
	s.addLine("began%s, at %s; its lease has ended, and no replica has recorded how the run ended", grantText(r), s.formatTime(r.Started))
}

// explainHolders explains the grants of the tick that have no record. The record of a run may be written later than its grant.
func (s *explainer) explainHolders() {
	for _, h := range s.state.Running {
		if s.isHeldBy(h) && !s.isRecorded(h.ID) {
			s.Phase = PhaseRunning
			s.addLine("granted to %s with token %d, slot %d; it waits for a slot of its pool, or its start is not recorded yet", h.Holder, h.Token, h.Slot)
		}
	}
	for _, h := range s.state.Orphans {
		if s.isHeldBy(h) && !s.isRecorded(h.ID) {
			recovered := slices.ContainsFunc(s.Runs, func(r journal.Record) bool { return r.Attempt > h.Attempt && !isManual(r) })
			if s.Phase == PhaseOver && !recovered {
				s.Phase = PhaseUnknown
			}
			s.addLine("granted to %s with token %d, whose lease has ended; no replica has recorded how the run ended", h.Holder, h.Token)
		}
	}
}

func (s *explainer) isRecorded(id string) bool {
	return slices.ContainsFunc(s.Runs, func(r journal.Record) bool { return r.RunID == id })
}

// grantText names the replica and the grant of a run; "" if there was no grant.
func grantText(r journal.Record) (text string) {
	if r.Token == 0 {
		return ""
	}
	text = fmt.Sprintf(" on %s with token %d", r.Replica, r.Token)
	if r.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", r.Attempt)
	}
	return text
}

// slotNumber returns a record's slot; -1 for a tick without a run.
func slotNumber(r journal.Record) int {
	if r.Slot == nil {
		return -1
	}
	return *r.Slot
}

func (s *explainer) endText(r journal.Record) string {
	text := string(r.Outcome)
	if reason := ReasonText(r); reason != "" {
		text += " (" + reason + ")"
	}
	if r.Retried {
		text += ", and was tried again"
	}
	if r.DurationMS != nil {
		text += fmt.Sprintf(" after %v", time.Duration(*r.DurationMS)*time.Millisecond)
	}
	return text + fmt.Sprintf(", from %s to %s", s.formatTime(r.Started), s.formatTime(r.Finished))
}

func (s *explainer) explainOrigin(i int) {
	const late = time.Second
	r := s.Runs[i]
	switch {
	case r.Trigger == "recovery":
		s.explainRecovery(i)
	case r.Trigger == "catch_up":
		s.addLine("it was caught up: no replica, or no Redis, was there at its time")
	case isManual(r):
		s.addLine("a user asked for it; cronclave audit names the user")
	case !r.Started.IsZero() && r.Started.Sub(r.Tick) > late && r.Attempt <= 1:
		s.addLine("it started %v late, by its jitter, or as it waited for a slot, a pool, a replica or Redis", r.Started.Sub(r.Tick).Round(time.Millisecond))
	}
}

// explainRecovery adds a line about the run that a recovery repeats: the latest earlier attempt that its replica did not complete.
func (s *explainer) explainRecovery(i int) {
	r := s.Runs[i]
	var lost *journal.Record
	for n := range s.Runs {
		before := &s.Runs[n]
		drained := before.Outcome == journal.OutcomeCanceled && before.Reason == "drain"
		unfinished := drained || before.Outcome == journal.OutcomeAbandoned || before.Outcome == journal.OutcomeLost
		if unfinished && !isManual(*before) && before.Attempt < r.Attempt && (lost == nil || before.Attempt > lost.Attempt) {
			lost = before
		}
	}
	if lost != nil {
		s.addLine("take-over from %s, whose run was %s", lost.Replica, strings.TrimSpace(lost.Verdict().String()))
	}
}

func (s *explainer) explainCause(r journal.Record) {
	switch r.Reason {
	case "paused":
		s.explainPaused(r)
	case "redis", "cannot_start":
		s.explainDetail(r)
	case "overlap", "slots":
		for _, other := range s.past {
			s.explainOverlap(r, other)
		}
	}
}

func (s *explainer) explainDetail(r journal.Record) {
	if r.Detail != "" {
		s.addLine("%s", FirstLine(r.Detail, 200))
	}
}

// explainOverlap mentions the run other if it held a slot at the tick.
func (s *explainer) explainOverlap(r, other journal.Record) {
	running := other.Outcome == journal.OutcomeRunning
	switch {
	case other.Started.IsZero(), other.Retried, s.isOf(other), other.Started.After(r.Finished), !running && other.Finished.Before(s.at):
	case running:
		s.addLine("run %s of %s held a slot from %s", other.RunID, other.Replica, s.formatTime(other.Started))
	default:
		s.addLine("run %s of %s held a slot from %s to %s", other.RunID, other.Replica, s.formatTime(other.Started), s.formatTime(other.Finished))
	}
}

// reasonTexts explains the reasons that are codes. All other reasons are texts for users.
var reasonTexts = map[journal.Reason]string{
	"overlap":      "all slots of the job were held, or another tick waited for one (overlap)",
	"paused":       "the job was paused",
	"down":         "no replica was up that may run the job",
	"labels":       "no replica was up that has the labels of the job's where",
	"redis":        "Redis did not answer, or could not decide",
	"overload":     "the replica was too busy to claim it in time, or stood still",
	"late":         "no replica asked for it in time, for no known reason; look at the logs of the replicas",
	"slots":        "no slot of the job became free by the deadline",
	"pool":         "no slot of the pool became free by the deadline",
	"capacity":     "no replica had a place for the run, or could start programs",
	"cannot_start": "the program could not be started by the deadline",
	"user":         "canceled by a user; cronclave audit names the user",
	"replaced":     "stopped in favour of a later tick (overlap = \"replace\")",
	"drain":        "its replica drained, and the run did not end in time",
}

// ReasonText explains the reason of a record's outcome in one line; "" if the outcome needs no explanation.
func ReasonText(r journal.Record) string {
	if _, replica := journal.InstanceOf(r.Job); replica != "" && r.Reason == "down" {
		return "replica " + replica + " was not up, and no other one runs this job"
	}
	if text := reasonTexts[r.Reason]; text != "" {
		return text
	}
	switch {
	case r.Reason != "":
	case r.Outcome == journal.OutcomeAbandoned:
		return "its replica died, or was cut off from Redis"
	case r.Outcome == journal.OutcomeLost:
		return "its lease was lost, so it was stopped"
	}
	return FirstLine(string(r.Reason), 200)
}

func (s *explainer) explainPause(matters bool, effect string) {
	if p := s.state.Pause; matters && !p.From.IsZero() {
		s.addPause(p, p.On(s.state.Now), effect)
	}
}

// addPause adds a line about a pause. If the pause is on, the line ends with effect. A pause that is over and has no Until has an unknown end.
func (s *explainer) addPause(p election.Pause, on bool, effect string) {
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

// explainPaused adds a line about the pause that skipped a tick. The lock has only the newest pause and the user of its last change. The audit log also has
// earlier pauses and users.
func (s *explainer) explainPaused(r journal.Record) {
	p, newest := s.state.Pause, canSettle(s.state.Pause, r)
	logged, note := s.loggedPause(r)
	switch {
	case newest && logged.Covers(p.From): // p and logged are the same pause: an act is logged before it is carried out, so p begins a moment later
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
	s.addPause(p, newest && p.On(s.state.Now), "its ticks are skipped")
	if note != "" {
		s.addLine("%s", note)
	}
}

func (s *explainer) unreadableText() string {
	if s.actsErr == nil {
		return ""
	}
	return "the audit log cannot be read: " + strings.TrimPrefix(s.actsErr.Error(), "read the audit log: ")
}

// boundPause removes the end of a logged pause if that end is in the future, or after the start of the present pause. An act that the audit log lacks has ended
// such a pause earlier, at an unknown time.
func (s *explainer) boundPause(p election.Pause) election.Pause {
	latest := s.state.Now
	if next := s.state.Pause.From; next.After(p.From) {
		latest = next
	}
	if p.Until.After(latest) {
		p.Until = time.Time{}
	}
	return p
}

// canSettle reports whether a pause may have skipped the tick of a record: the pause covers the tick, or the time at which the tick was settled.
func canSettle(p election.Pause, r journal.Record) bool {
	return p.Covers(r.Tick) || p.Covers(r.Finished)
}

// needsActs reports whether the audit log is needed: a pause skipped the tick, and the lock has only the newest pause, with the user of its last change.
func (s *explainer) needsActs() bool {
	return slices.ContainsFunc(s.past, func(r journal.Record) bool { return s.isOf(r) && r.Reason == "paused" })
}

// loggedPause returns the pause that skipped the tick of a record, according to the audit log; the zero Pause if the log has none. The entry of an act names
// only the first of its jobs. If the result depends on an entry that may concern the job without naming it, note says that the pause is not certain.
func (s *explainer) loggedPause(r journal.Record) (p election.Pause, note string) {
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

// settledBy returns the pause that skipped the tick of a record, according to the acts for which about returns true. It tries the pause at the time of the
// record first. It then tries the pause at the tick, because a replica may have claimed the tick before it wrote the record.
func (s *explainer) settledBy(r journal.Record, about func(journal.Act) bool) election.Pause {
	for _, at := range []time.Time{r.Finished, r.Tick} {
		if p := pauseAt(s.acts, about, at); canSettle(p, r) {
			return p
		}
	}
	return election.Pause{}
}

func (s *explainer) isNamed(a journal.Act) bool {
	of, _ := journal.InstanceOf(s.Job) // an act on a job with per_tick = "all" is one on its instances
	return slices.Contains(a.Jobs, s.Job) || slices.Contains(a.Jobs, of)
}

// mayMean reports whether an act names the job, or may concern the job without naming it. The entry of an act names only the first of its jobs, in alphabetical
// order.
func (s *explainer) mayMean(a journal.Act) bool {
	return s.isNamed(a) || a.JobCount > len(a.Jobs) && len(a.Jobs) > 0 && s.Job > a.Jobs[len(a.Jobs)-1]
}

// pauseAt returns the newest pause that had begun at the given time, according to the acts for which about returns true. acts are sorted from old to new. The
// user and the reason are as they were at that time. The end includes changes by later acts.
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

// carriedOn returns the pause p after the act a of kind pause. If on is set, p was on before a and keeps its start. If later is set, a came after the time for
// which the pause is wanted, so p keeps its user and reason.
func carriedOn(p election.Pause, a journal.Act, on, later bool) election.Pause {
	if !on {
		p = election.Pause{From: a.Time, Outcome: run.SkippedPaused}
	}
	if !later {
		p.By, p.Reason = a.By, a.Reason
	}
	if p.Until = (time.Time{}); a.Until != nil {
		p.Until = *a.Until
	}
	return p
}
