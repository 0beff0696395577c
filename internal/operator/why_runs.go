package operator

import (
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// explainRuns is about a tick by its records.
func (s *story) explainRuns() {
	s.Verdict = Over
	for i, r := range s.Runs {
		switch {
		case r.Outcome == journal.OutcomeRunning:
			s.Verdict = Running
			s.say("runs on %s since %s, %s", r.Replica, s.show(r.Started), grant(r))
		case r.Started.IsZero():
			s.say("%s: %s", r.Outcome, reasonText(r))
			s.explainCause(r)
		default:
			s.say("ran on %s, %s: %s", r.Replica, grant(r), s.end(r))
		}
		s.explainOrigin(i)
	}
}

// grant says by which right a record's run ran.
func grant(r journal.Record) string {
	text := fmt.Sprintf("with token %d", r.Token)
	if r.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", r.Attempt)
	}
	return text
}

// end says how a run ended, and when.
func (s *story) end(r journal.Record) string {
	text := r.Outcome
	if reason := reasonText(r); reason != "" {
		text += " (" + reason + ")"
	}
	if r.Retried {
		text += ", and was tried again"
	}
	if r.DurationMS != nil {
		text += fmt.Sprintf(" after %v", time.Duration(*r.DurationMS)*time.Millisecond)
	}
	return text + fmt.Sprintf(", from %s to %s", s.show(r.Started), s.show(r.Finished))
}

// explainOrigin says why a run started other than by the schedule, or late.
func (s *story) explainOrigin(i int) {
	const late = time.Second
	r := s.Runs[i]
	switch {
	case r.Trigger == "recovery" && i > 0:
		s.say("it took over from %s, whose run was lost with it", s.Runs[i-1].Replica)
	case r.Trigger == "catch_up":
		s.say("it was caught up: no replica, or no Redis, was there at its time")
	case r.Trigger == "manual":
		s.say("a user asked for it (cronclave trigger)")
	case !r.Started.IsZero() && !r.Retried && r.Started.Sub(r.Tick) > late && r.Attempt <= 1:
		s.say("it started %v after its time: by its jitter, or since no slot or no replica was free", r.Started.Sub(r.Tick).Round(time.Millisecond))
	}
}

// explainCause names the runs that were in the way of a tick that did not run, and the pause.
func (s *story) explainCause(r journal.Record) {
	switch r.Reason {
	case "paused":
		s.explainPause("its ticks are skipped")
	case "overlap", "slots":
		for _, other := range s.past {
			if other.Started.IsZero() || other.Retried || other.Tick.Equal(s.At) || other.Started.After(r.Finished) {
				continue
			}
			if running := other.Finished.IsZero(); running || !other.Finished.Before(s.At) {
				until := "and still runs"
				if !running {
					until = "until " + s.show(other.Finished)
				}
				s.say("run %s of %s held a slot from %s, %s", other.RunID, other.Replica, s.show(other.Started), until)
			}
		}
	}
}

// reasonTexts say what a word in a record means. Other reasons are texts themselves.
var reasonTexts = map[string]string{
	"overlap":  "all slots of the job were held, or an earlier tick waited for one (overlap)",
	"paused":   "the job was paused",
	"down":     "no replica was up that may run the job",
	"redis":    "Redis did not answer, or had lost its data",
	"overload": "the replica was too busy to claim it in time, or stood still",
	"late":     "it was claimed too late, for no known reason",
	"slots":    "no slot of the job became free by the deadline",
	"pool":     "no slot of the pool became free by the deadline",
	"capacity": "no replica had a place for the run, or could start programs",
	"user":     "canceled by a user (cronclave cancel)",
	"replaced": "stopped in favour of a later tick (overlap = \"replace\")",
	"drain":    "its replica drained, and the run did not end in time",
}

func reasonText(r journal.Record) string {
	if text := reasonTexts[r.Reason]; text != "" {
		return text
	}
	if r.Reason == "" && r.Outcome == journal.OutcomeAbandoned {
		return "its replica disappeared"
	}
	return FirstLine(r.Reason, 200)
}

func joinNames(names []string) string { return strings.Join(names, ", ") }
