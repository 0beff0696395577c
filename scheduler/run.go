package scheduler

// The life of a run, from the grant of its tick to the release of its lease:
//
//	granted -> awaiting its pool -> running -> stopping -> dead -> recorded -> released
//
// After a dead try, another try may follow. A run whose work never begins is released without a record, and its grant is given back. phase.go has all
// transitions. They guarantee that no lease is released while a process of the run may still be alive.

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
)

// executeRun executes a granted run. If the job has a pool, it first waits for a slot of the pool; during this wait the run keeps its slot of the job
// and its place on this replica. If the tick was given back, the record of the ending is empty.
func (x *executor) executeRun(ctx context.Context, job *Job, run *Run, term *election.Term) ending {
	failpoint("granted", run)
	run.life = x.newLife(run)
	if job.Pool.Name == "" || term == nil {
		return x.carryOut(ctx, job, run, term)
	}
	run.life.moveTo(phase{name: phaseAwaitingPool})
	slot, why := x.enterPool(ctx, job, run, term)
	if why != nil {
		return ending{record: x.withholdRun(job, run, term, why)}
	}
	return x.carryOut(ctx, job, run, term.With(slot))
}

// An ending is the result of a run.
type ending struct {
	record    Record
	unstarted error // the reason if the work never began: the grant was given back, and there is no record
	// unreturned is closed when the Runner of the last try has returned. After a try that was called off, the Runner may still be running.
	unreturned <-chan struct{}
}

// carryOut runs the job with all its tries, records the end, and ends the term. When ctx ends, the run is stopped.
func (x *executor) carryOut(ctx context.Context, job *Job, run *Run, term *election.Term) ending {
	log := x.runLogger(run)
	run.Replica, run.Logger = x.replica, log
	record := Record{RunID: run.ID, Job: run.Job, Tick: run.Tick, Local: run.Local, Trigger: run.Trigger, Slot: run.Slot, Attempt: run.Attempt,
		Token: run.Token, Replica: x.replica, Outcome: Running, Started: x.now()}
	watched := logLostLease(job, run, term)
	end := x.runTries(ctx, job, run, term, &record)
	watched()
	if end.state == notStarted {
		return x.undoGrant(job, run, term, &record, end)
	}
	failpoint("ended", run)
	x.markSucceeded(job, run, term, &record)
	failpoint("told", run)
	x.recordEnd(record, job.Lease/4) // before the release: if this replica died in between, the run would stay "running" in the history for ever
	run.life.moveTo(phase{name: phaseRecorded})
	failpoint("recorded", run)
	if term != nil {
		if err := x.endTerm(job, run, term, &record, end.state == interrupted); err != nil {
			log.Warn("the lease could not be released; it ends by itself", "error", err)
		}
	}
	run.life.moveTo(phase{name: phaseReleased})
	failpoint("released", run)
	record.logEnd(run, "finished", term != nil && x.leavesToRecovery(job, run, &record, end.state == interrupted), x.earlierFailures(&record)...)
	return ending{record: record, unreturned: end.unreturned}
}

// A tryEnd is the result of all tries of a run.
type tryEnd struct {
	state      endState
	why        error           // the reason if state is notStarted
	unreturned <-chan struct{} // see [ending]
}

type endState int

const (
	concluded   endState = iota // the record has the outcome of the run
	interrupted                 // another try was due but must not begin here; a recovery may run it
	notStarted                  // no try has begun its work
)

// runTries runs the tries of a run. At the end, record has the outcome of the last try. Each earlier try has its own record.
func (x *executor) runTries(ctx context.Context, job *Job, run *Run, term *election.Term, record *Record) (end tryEnd) {
	var last *pastTry
	for asked := x.now(); ; {
		opening, this, before := *record, run, last
		run.life.moveTo(phase{name: phaseRunning, try: run.Attempt})
		begin, result, cause := x.launchTry(ctx, job, run, term, func(at time.Time) { x.recordBegun(this, opening, at, before) })
		run.life.moveTo(phase{name: phaseDead})
		end.unreturned = begin.over
		if end.why = begin.unstartedCause(result, cause); end.why != nil {
			if x.unstartedTry(ctx, run, term, last, asked, end.why) {
				continue
			}
			if end.state = notStarted; last != nil {
				*record = last.run
				end.state = x.noMoreTries(ctx, job, term, record)
			}
			return end
		}
		began := begin.beganAt(asked)
		if last == nil {
			record.Started = began
		}
		record.Finished = later(x.now().Add(-result.EndedAgo), began)
		record.setOutcome(result, cause, hasLapsed(job, term))
		if last != nil && !begin.is(started) { // this try was stopped before its work began; it still counts, so the try before it gets its record
			x.recorder.add(last.try)
		}
		if run.Attempt > job.Retry.Max || record.Outcome != Failed && record.Outcome != TimedOut {
			return end
		}
		pause := job.Retry.pauseBefore(run.Attempt)
		last = &pastTry{run: *record, try: record.tryRecord(began)}
		run.Logger.Info("try failed", append(last.try.logFields(), "attempt", run.Attempt, "retry_in", pause.Round(time.Millisecond).String())...)
		attempt, ok := x.nextTry(ctx, job, run, term, pause)
		if !ok {
			end.state = x.noMoreTries(ctx, job, term, record)
			return end
		}
		next := *run
		next.Attempt = attempt
		run, asked = &next, x.now()
		record.beginAttempt(attempt)
	}
}
