package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/cronclave/cronclave/election"
)

// recordEnd records the end of a run and waits for the write, unless the journal is failing.
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
	_ = written.wait(limit) // the recorder logs the records that it could not write
}

// markSucceeded records a success in the cluster before the release, if a child or a recovery depends on it. Otherwise, if this replica is killed in
// between, they would see a lease that expired.
func (x *executor) markSucceeded(job *Job, run *Run, term *election.Term, record *Record) {
	if term == nil || record.Outcome != OK || !run.followed && (job.Recover.Max == 0 || run.Trigger == manual) {
		return
	}
	err := term.MarkSucceeded(x.parting, run.followed)
	if errors.Is(err, election.ErrUnknown) { // once more: if a run is recorded as ok and its replica dies now, no child would run
		err = term.MarkSucceeded(x.parting, run.followed)
	}
	if err != nil {
		run.Logger.Debug("Redis has not acknowledged yet that the run has ended", "error", err)
	}
}

// endTerm ends the term of a run that is over and recorded. An interrupted run that may be recovered is handed over. The outcome of any other run is
// kept for the children of the job.
func (x *executor) endTerm(job *Job, run *Run, term *election.Term, record *Record, interrupted bool) error {
	switch {
	case x.leavesToRecovery(job, run, record, interrupted):
		return term.HandOver(context.Background(), record.Attempt)
	case run.followed:
		return term.ReleaseWith(context.Background(), record.Outcome == OK)
	}
	return term.End(context.Background())
}

// leavesToRecovery reports whether a run that is over is left to a recovery: it was interrupted, and its job allows another attempt.
func (x *executor) leavesToRecovery(job *Job, run *Run, record *Record, interrupted bool) bool {
	interrupted = interrupted || record.Outcome == Lost || record.Outcome == Canceled && record.Reason == reasonDrain
	return interrupted && run.Trigger != manual && job.Recover.allowsAttempt(record.Tick, record.Attempt)
}
