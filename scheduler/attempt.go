package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// attempt is one try of this replica to act on a request.
type attempt struct {
	exec     *executor
	requests Requests
	claimer  Claimer
	request  Request
	job      *Job
	isTick   bool // the request's tick is one of the job, if it has one
	bound    bool // it must not start a run
}

// run returns when to try again, zero if the request is done with; and after the run, if there is one, its term.
func (a attempt) run() (again time.Time, term *election.Term) {
	ctx := a.exec.draining
	r := a.requests.Take(context.WithoutCancel(ctx), election.TriggerRequest{Job: a.job.Name, ID: a.request.ID, Claimant: newRunID(),
		Created: a.request.Created, Expires: a.request.Expires, Lease: requestLease})
	switch r.Verdict {
	case election.Granted:
		return a.taken(ctx, r.Term)
	case election.Settled:
		a.dispose(Missed, "late")
		return time.Time{}, nil
	case election.Taken:
		if r.Until.IsZero() {
			return time.Time{}, nil
		}
		return r.Until.Add(inspectMargin), nil
	case election.Before:
		return time.Time{}, nil
	case election.CannotTell:
		if !errors.Is(r.Err, election.ErrUnknown) {
			a.exec.log.Error("a request could not be taken", "job", a.job.Name, "request", a.request.ID, "error", r.Err)
			return time.Time{}, nil
		}
	}
	return a.exec.now().Add(heldPause), nil
}

// taken goes on when this replica, and no other, may act on the request.
func (a attempt) taken(ctx context.Context, right *election.Term) (again time.Time, term *election.Term) {
	if why := a.fault(); why != "" {
		return a.refuse(right, why), nil
	}
	term, why := a.slot(ctx, right)
	switch {
	case term != nil:
	case why == "overlap":
		return a.end(right, Skipped, why), nil
	case why == "slots":
		return a.end(right, Missed, why), nil
	case why != "":
		return a.end(right, Failed, why), nil
	default:
		return a.leave(right), nil
	}
	if err := a.exec.breaker.check(); err != nil { // a request that was begun can't be left to another replica
		a.exec.breaker.failed(err)
		_ = term.Return(context.Background()) // it goes on in the background
		return a.leave(right), nil
	}
	if !a.begin(ctx, right) {
		_ = term.Return(context.Background()) // it goes on in the background
		return a.exec.now().Add(heldPause), nil
	}
	a.execute(term)
	return time.Time{}, term
}

// fault returns why the tick of a request can't be run again.
func (a attempt) fault() string {
	tick := a.request.Tick
	switch {
	case tick.IsZero():
		return ""
	case !a.isTick:
		return tick.UTC().Format(time.RFC3339) + " is no tick of the job"
	case tick.After(a.exec.now()):
		return tick.UTC().Format(time.RFC3339) + " is yet to come"
	}
	return ""
}

// leave gives the request back, so that any replica can claim it again.
func (a attempt) leave(right *election.Term) (again time.Time) {
	if err := right.Return(context.Background()); err != nil {
		a.exec.log.Debug("a request could not be given back; others have it when its lease has ended", "request", a.request.ID, "error", err)
	}
	return a.exec.now().Add(heldPause)
}

// begin is the step after which no other replica starts the request. If begin can't be sure of that it returns false, and the run is not started.
func (a attempt) begin(ctx context.Context, right *election.Term) bool {
	if ctx.Err() != nil || right.Context().Err() != nil || right.Remaining() < requestLease/2 { // a slow step would find it gone
		a.leave(right)
		return false
	}
	err := right.End(context.Background())
	if errors.Is(err, election.ErrUnknown) { // again: the server remembers what it did
		err = right.End(context.Background())
	}
	if err != nil {
		a.exec.log.Warn("trigger request not started: cannot confirm that no other replica runs it", "job", a.job.Name, "request", a.request.ID, "error", err)
	}
	return err == nil
}

// slot waits for a slot of the job until the request expires. A non-empty why is the reason for which there will be none: the request is decided without
// a run. Without a term and without a reason the request is left to other replicas. Where a replica has died over the request, the slot that is held may
// be the one that it took: nothing is skipped for that.
func (a attempt) slot(ctx context.Context, right *election.Term) (term *election.Term, why string) {
	c := election.Claim{Job: a.job.Name, ID: newRunID(), Trigger: manual, Slots: a.job.Parallel, PerTick: a.job.PerTick, Lease: a.job.Lease,
		Abstain: a.bound}
	doubted := false
	defer func() {
		if doubted && term == nil {
			a.claimer.Withdraw(c)
		}
	}()
	for told := false; ctx.Err() == nil && right.Context().Err() == nil; told = true {
		if !a.exec.now().Before(a.request.Expires) {
			return nil, "slots"
		}
		switch r := a.claimer.Claim(context.WithoutCancel(ctx), []election.Claim{c})[0]; {
		case r.Verdict == election.Granted:
			return r.Term, ""
		case r.Verdict == election.CannotTell && !errors.Is(r.Err, election.ErrUnknown):
			return nil, r.Err.Error()
		case r.Verdict == election.CannotTell:
			doubted = true
		case r.Verdict == election.Held && a.bound && r.By == "": // there is a slot, for another replica
			return nil, ""
		case r.Verdict == election.Held && right.Attempt() == 1 && a.job.Overlap == OverlapSkip:
			return nil, "overlap"
		}
		if !told {
			a.answer(Answer{})
		}
		a.rest(ctx, right)
	}
	return nil, ""
}

// rest waits between two looks for a slot.
func (a attempt) rest(ctx context.Context, right *election.Term) {
	timer := time.NewTimer(min(heldPause, max(a.request.Expires.Sub(a.exec.now()), agenda.ClockSlack)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-right.Context().Done():
	}
}

// end decides the request without a run.
func (a attempt) end(right *election.Term, outcome Outcome, reason string) (again time.Time) {
	if err := right.End(context.Background()); err != nil {
		return a.exec.now().Add(heldPause)
	}
	a.dispose(outcome, reason)
	return time.Time{}
}

// refuse decides a request for an instant that is no tick, or none yet. It writes no record: that would stand in the history as the outcome of a tick.
func (a attempt) refuse(right *election.Term, why string) (again time.Time) {
	if err := right.End(context.Background()); err != nil {
		return a.exec.now().Add(heldPause)
	}
	a.deny(Failed, why)
	return time.Time{}
}

// dispose decides a request that has no run. It has a record, as a tick would.
func (a attempt) dispose(outcome Outcome, reason string) {
	a.exec.recorder.add(Record{RunID: a.request.ID, Job: a.job.Name, Tick: a.request.Tick, Trigger: manual, Replica: a.exec.replica,
		Outcome: outcome, Reason: reason, Finished: a.exec.now()})
	a.deny(outcome, reason)
}

// deny answers the requester that there is no run.
func (a attempt) deny(outcome Outcome, reason string) {
	a.exec.log.Log(outcome.level(reason, false), "request not run", "job", a.job.Name, "request", a.request.ID, "outcome", string(outcome), "reason", reason)
	a.answer(Answer{Outcome: outcome, Reason: reason})
}

// execute runs the job. The requester gets its answer at the same time, so that a slow journal delays nothing.
func (a attempt) execute(term *election.Term) {
	run := &Run{ID: term.ID(), Job: a.job.Name, Tick: a.request.Tick, Trigger: manual, Slot: term.Slot(), Slots: a.job.Parallel,
		Attempt: term.Attempt(), Token: term.Token(), insist: a.request.Expires}
	told := make(chan struct{})
	go func() {
		defer close(told)
		a.answer(Answer{Outcome: Running, RunID: run.ID})
	}()
	a.exec.execute(context.Background(), a.job, run, term)
	<-told
}

// answerTries is how often at least an answer is sent to a journal that does not take it.
const answerTries = 3

// answer sends an answer to the requester. An outcome is sent repeatedly to a journal that does not take it, until the request expires or this replica
// goes: the journal's server may be about to be replaced.
func (a attempt) answer(say Answer) {
	say.Request, say.Replica = a.request.ID, a.exec.replica
	tries := answerTries
	if say.Outcome == "" { // that matters little
		tries = 1
	}
	awaited := func() bool {
		return say.Outcome != "" && a.exec.draining.Err() == nil && a.exec.now().Before(a.request.Expires)
	}
	retry := newBackoff()
	for n := 1; ; n++ {
		ctx, cancel := context.WithTimeout(a.exec.parting, recordTimeout)
		err := a.requests.Answer(ctx, say)
		cancel()
		if err == nil {
			return
		}
		if n >= tries && !awaited() || !retry.Wait(a.exec.parting) {
			a.exec.log.Warn("cannot deliver trigger answer", "job", a.job.Name, "request", a.request.ID, "error", err)
			return
		}
	}
}
