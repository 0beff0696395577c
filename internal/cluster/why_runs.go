package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
)

// explainRuns explains the records of a tick.
func (s *story) explainRuns() {
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
	s.Fate = s.fateOfRuns()
}

// fateOfRuns returns the fate according to the records. A run in progress takes precedence over a run with an unknown end, and that over all others.
func (s *story) fateOfRuns() Fate {
	running := func(r journal.Record) bool { return r.Outcome == journal.OutcomeRunning }
	switch {
	case len(s.Runs) == 0:
		return Unknown
	case slices.ContainsFunc(s.Runs, func(r journal.Record) bool { return running(r) && s.hasLease(r) }):
		return Running
	case slices.ContainsFunc(s.lastRuns(), running):
		return Unknown
	}
	return Over
}

// lastRuns returns the records that no later attempt follows.
func (s *story) lastRuns() []journal.Record {
	return slices.DeleteFunc(slices.Clone(s.Runs), func(r journal.Record) bool {
		return slices.ContainsFunc(s.Runs, func(later journal.Record) bool { return isLaterAttempt(later, r) })
	})
}

// isLaterAttempt reports whether the record later belongs to a later attempt than r. A recovery may hold another slot than the run before it, because it takes
// the lowest free one. A tick of a job with recoveries never has two runs at once. The attempts of each manual run count from 1.
func isLaterAttempt(later, r journal.Record) bool {
	switch {
	case isManual(later) != isManual(r) || later.Attempt <= r.Attempt:
		return false
	case isManual(r):
		return later.Token == r.Token
	}
	return later.Trigger == "recovery" || slotNumber(later) == slotNumber(r)
}

// isManual reports whether a user requested a run.
func isManual(r journal.Record) bool { return r.Trigger == "manual" }

// hasLease reports whether the run of a record still has its lease.
func (s *story) hasLease(r journal.Record) bool {
	return slices.ContainsFunc(s.state.Running, func(h election.Run) bool { return h.ID == r.RunID })
}

// explainRunning explains a run without an end in the history. The lock shows whether the run still has its lease.
func (s *story) explainRunning(r journal.Record) {
	if s.hasLease(r) {
		s.addLine("runs%s, since %s", grantText(r), s.formatTime(r.Started))
		return
	}
	s.addLine("began%s, at %s; its lease has ended, and no replica has recorded how the run ended", grantText(r), s.formatTime(r.Started))
}

// explainHolders explains grants of the tick that have no record, because records may be written later than grants.
func (s *story) explainHolders() {
	for _, h := range s.state.Running {
		if s.isHeldBy(h) && !s.isRecorded(h.ID) {
			s.Fate = Running
			s.addLine("granted to %s with token %d, slot %d; it waits for a slot of its pool, or its start is not recorded yet", h.Holder, h.Token, h.Slot)
		}
	}
	for _, h := range s.state.Orphans {
		if s.isHeldBy(h) && !s.isRecorded(h.ID) {
			recovered := slices.ContainsFunc(s.Runs, func(r journal.Record) bool { return r.Attempt > h.Attempt && !isManual(r) })
			if s.Fate == Over && !recovered {
				s.Fate = Unknown
			}
			s.addLine("granted to %s with token %d, whose lease has ended; no replica has recorded how the run ended", h.Holder, h.Token)
		}
	}
}

func (s *story) isRecorded(id string) bool {
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

// endText describes the end of a run.
func (s *story) endText(r journal.Record) string {
	text := r.Outcome
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

// explainOrigin explains why a run started outside the schedule, or late.
func (s *story) explainOrigin(i int) {
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

// explainRecovery names the run that a recovery follows: the newest earlier run that its replica could not complete.
func (s *story) explainRecovery(i int) {
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
		s.addLine("take-over from %s, whose run was %s", lost.Replica, strings.TrimSpace(lost.Outcome+" "+lost.Reason))
	}
}

// explainCause names the runs, or the pause, that kept a tick from running.
func (s *story) explainCause(r journal.Record) {
	switch r.Reason {
	case "paused":
		s.explainPaused(r)
	case "redis":
		s.explainDetail(r)
	case "overlap", "slots":
		for _, other := range s.past {
			s.explainOverlap(r, other)
		}
	}
}

// explainDetail quotes the detail of a record.
func (s *story) explainDetail(r journal.Record) {
	if r.Detail != "" {
		s.addLine("%s", FirstLine(r.Detail, 200))
	}
}

// explainOverlap mentions the run other if it held a slot at the tick.
func (s *story) explainOverlap(r, other journal.Record) {
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
var reasonTexts = map[string]string{
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
	if text := reasonTexts[r.Reason]; text != "" {
		return text
	}
	switch {
	case r.Reason != "":
	case r.Outcome == journal.OutcomeAbandoned:
		return "its replica died, or was cut off from Redis"
	case r.Outcome == journal.OutcomeLost:
		return "its lease was not renewed in time, so it was stopped"
	}
	return FirstLine(r.Reason, 200)
}
