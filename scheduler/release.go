package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/cronclave/cronclave/election"
)

// recordEnd records an end before the release, if the journal answers.
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

// markSucceeded has the cluster know of a run that has ended well, where that is decisive: for jobs that run after it, and for recoveries. Else a replica that is killed
// before the release would have them go by the lease that ends.
func (x *executor) markSucceeded(job *Job, run *Run, term *election.Term, record *Record) {
	if term == nil || record.Outcome != OK || !run.followed && (job.Recover.Max == 0 || run.Trigger == manual) {
		return
	}
	err := term.EndedWell(x.parting, run.followed)
	if errors.Is(err, election.ErrUnknown) { // once more: if a run is recorded as ok, and lost with its replica, no job would run after it
		err = term.EndedWell(x.parting, run.followed)
	}
	if err != nil {
		run.Logger.Debug("Redis has not acknowledged yet that the run has ended", "error", err)
	}
}

// part ends a term whose run is over and recorded. It is handed over to a recovery if the run was interrupted, and may have one. The end of any other run
// is kept for the jobs that run after it.
func (x *executor) part(job *Job, run *Run, term *election.Term, record *Record, interrupted bool) error {
	switch {
	case x.recovers(job, run, record, interrupted):
		return term.Leave(context.Background(), record.Attempt)
	case run.followed:
		return term.Conclude(context.Background(), record.Outcome == OK)
	}
	return term.End(context.Background())
}

// recovers returns whether a run that is over is left to a recovery: one that was interrupted, if its job has that.
func (x *executor) recovers(job *Job, run *Run, record *Record, interrupted bool) bool {
	interrupted = interrupted || record.Outcome == Lost || record.Outcome == Canceled && record.Reason == reasonDrain
	return interrupted && run.Trigger != manual && job.Recover.allows(record.Tick, record.Attempt)
}
