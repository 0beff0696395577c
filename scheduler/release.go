package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/cronclave/cronclave/election"
)

// recordEnd records the end of a run. Unless writes to the journal are failing, it waits for the write, at most for the time most.
func (x *executor) recordEnd(record Record, most time.Duration) {
	if x.recorder.journal == nil {
		return
	}
	written := x.recorder.add(record)
	if x.recorder.failing.Load() {
		return
	}
	limit, cancel := context.WithTimeout(x.parting, min(most, recordTimeout))
	defer cancel()
	defer context.AfterFunc(x.abort, cancel)()
	_ = written.wait(limit) // the recorder logs lost records
}

// markSucceeded tells Redis before the release that a run has succeeded, if children or recoveries depend on the success. Without it, the run would
// count as interrupted if this replica were killed before the release.
func (x *executor) markSucceeded(job *Job, run *Run, term *election.Term, record *Record) {
	if term == nil || record.Outcome != OK || !run.followed && (job.Recover.Max == 0 || run.Trigger == manual) {
		return
	}
	err := term.MarkSucceeded(x.parting, run.followed)
	if errors.Is(err, election.ErrUnknown) { // try once more: if this replica died after the run was recorded as ok, no child would run
		err = term.MarkSucceeded(x.parting, run.followed)
	}
	if err != nil {
		run.Logger.Debug("Redis has not acknowledged yet that the run has ended", "error", err)
	}
}

// endTerm ends the term of a recorded run. It hands over an interrupted run that may be recovered. If the job has children, Redis keeps the outcome
// for them.
func (x *executor) endTerm(job *Job, run *Run, term *election.Term, record *Record, interrupted bool) error {
	switch {
	case x.leavesToRecovery(job, run, record, interrupted):
		return term.HandOver(context.Background(), record.Attempt)
	case run.followed:
		return term.ReleaseWith(context.Background(), record.Outcome == OK)
	}
	return term.End(context.Background())
}

// leavesToRecovery reports whether a run that has ended is to be recovered: it was interrupted, and its job allows another attempt.
func (x *executor) leavesToRecovery(job *Job, run *Run, record *Record, interrupted bool) bool {
	interrupted = interrupted || record.Outcome == Lost || record.Outcome == Canceled && record.Reason == reasonDrain
	return interrupted && run.Trigger != manual && job.Recover.allowsAttempt(record.Tick, record.Attempt)
}
