package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cronclave/cronclave/election"
)

// Retry has a run that failed, or took longer than its timeout, tried again on the same replica, under the same lease and with the same token. Each try has
// its own timeout. The zero value is none.
type Retry struct {
	// Max is how many more tries there are at most; 100 at most. The attempts of [Recover] count, too.
	Max int
	// Delay lies before the second try. It doubles with each try up to MaxDelay, and up to half of it is taken off by chance, so that what failed together
	// is not tried again together. They default to 5s (or MaxDelay, if that is less) and 5m.
	Delay, MaxDelay time.Duration
}

func (r Retry) withDefaults() Retry {
	if r.Max == 0 {
		return Retry{}
	}
	if r.Delay == 0 {
		r.Delay = min(5*time.Second, orDefault(r.MaxDelay, 5*time.Second))
	}
	r.MaxDelay = orDefault(r.MaxDelay, max(5*time.Minute, r.Delay))
	return r
}

func (r Retry) fault() string {
	switch {
	case r.Max < 0 || r.Max > 100:
		return fmt.Sprintf("Retry.Max is %d: it must be from 0 to 100", r.Max)
	case r.Delay < 0 || r.MaxDelay < r.Delay:
		return fmt.Sprintf("Retry.MaxDelay is %v: it must not be less than Delay, %v, nor that negative", r.MaxDelay, r.Delay)
	}
	return ""
}

// pause is the time before a try; before the second it is number 1.
func (r Retry) pause(number int) time.Duration {
	d := r.Delay
	for ; number > 1 && d < r.MaxDelay; number-- {
		d *= 2
	}
	d = min(d, r.MaxDelay)
	return d - rand.N(d/2+1)
}

// tries leads a run through its tries. record has the outcome of the last one then; each before has a record of its own.
func (x *executor) tries(ctx context.Context, job *Job, run *Run, term *election.Term, record *Record) (end tryEnd) {
	var last *Record // of the try before
	for asked := x.now(); ; {
		opening := *record
		begin, result, cause := x.launch(ctx, job, run, term, func(at time.Time) { x.begun(run, opening, at, last == nil) })
		end.unreturned = begin.over
		if end.why = begin.unstarted(result, cause); end.why != nil {
			state, again := x.unstartedTry(ctx, run, term, last, asked, end.why)
			if again {
				continue
			}
			if last != nil {
				*record = *last
			}
			end.state = state
			return end
		}
		began := begin.beganAt(asked)
		if last == nil {
			record.Started = began
		}
		record.Finished = x.now()
		record.conclude(result, cause, lapsed(job, term))
		if run.Attempt > job.Retry.Max || record.Outcome != Failed && record.Outcome != TimedOut {
			return end
		}
		pause := job.Retry.pause(run.Attempt)
		one := record.try(began)
		run.Logger.Info("try failed", append(one.summary(), "attempt", run.Attempt, "retry_in", pause.Round(time.Millisecond).String())...)
		if !x.rest(ctx, term, pause) {
			if why := whyStopped(term); why != nil { // else its last try tells how it ended
				record.Finished = x.now()
				record.conclude(Result{ExitCode: record.ExitCode, Signal: record.Signal, Output: record.Output}, why, false)
				return end
			}
			if ctx.Err() == nil {
				end.state = interrupted
			}
			return end
		}
		if term != nil {
			if err := term.Again(context.Background()); err != nil { // a renewal will tell it
				run.Logger.Debug("the cluster does not know of another try yet", "error", err)
			}
		}
		x.recorder.add(one)
		record.FailedTries++
		before, next := *record, *run
		next.Attempt++
		last, asked = &before, x.now()
		run, record.Attempt, record.Outcome, record.Reason = &next, next.Attempt, Running, ""
	}
}

// begun is told of a try whose work has begun. The record of the run's start is not waited for: a holder that dies before it is written leaves an orphan, which
// is recorded as well.
func (x *executor) begun(run *Run, record Record, at time.Time, first bool) {
	if first {
		record.Started = at
		x.recorder.add(record)
	}
	x.pauses.reset(run.Job)
	x.breaker.started()
	run.Logger.Info("started", "slot", run.Slot, "attempt", run.Attempt)
}

// try is the record of a try that another has followed. Its id is the run's and the attempt.
func (r *Record) try(began time.Time) Record {
	one := *r
	one.RunID, one.Started, one.Retried, one.FailedTries = fmt.Sprintf("%s.%d", r.RunID, r.Attempt), began, true, 0
	return one
}

// rest waits between two tries, while the lease is renewed. It tells whether there is to be another one.
func (x *executor) rest(ctx context.Context, term *election.Term, pause time.Duration) bool {
	held := context.Background()
	if term != nil {
		held = term.Context()
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-x.draining.Done():
	case <-x.abort.Done():
	case <-held.Done():
	case <-stopping(term):
	}
	return ctx.Err() == nil && x.draining.Err() == nil && x.abort.Err() == nil && held.Err() == nil && whyStopped(term) == nil // also if it was in the same moment
}
