package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/cronclave/cronclave/election"
)

// Request asks the cluster for a run of a job outside its schedule. Times are by the server's clock.
type Request struct {
	ID, Job string
	// Tick is the past tick that is run again on purpose; zero for none. It must be an instant of the job's schedule.
	Tick time.Time
	// From Expires on nobody starts it.
	Created, Expires time.Time
}

// Answer tells what became of a [Request], or with an empty Outcome that Replica has taken it and waits.
type Answer struct {
	Request string
	// Outcome is Running once it was started. Otherwise it never will be: Skipped, Missed or Failed, with a Reason.
	Outcome        Outcome
	Reason         string
	Replica, RunID string
}

// Requests are what people ask of the cluster.
type Requests interface {
	// Hear calls f, from one goroutine, until ctx ends. The same request may come again and again.
	Hear(ctx context.Context, f func([]Request))
	// Take gives a request to at most one replica at a time: see [election.Elector.Take].
	Take(ctx context.Context, errand election.Errand) election.Result
	// Answer must come back soon. It is called by several goroutines.
	Answer(ctx context.Context, a Answer) error
}

const (
	// errandLease is how long a replica that has taken a request, and died before it began the run, is waited for.
	errandLease = 5 * time.Second
	// maxErrands bounds the requests that a replica remembers.
	maxErrands = 1000
)

// errand is a request on this replica. It belongs to the loop.
type errand struct {
	Request
	task  *task
	bound bool // the replica runs the job as often as it may: it can only find out that others do, too

	inErrands entry[*errand]
}

// errandResult tells when an errand is to be looked at again; zero if it is done with.
type errandResult struct {
	*errand
	again time.Time
	job   *Job
	term  *election.Term // of its run, which is over; nil without one
}

// hearRequests has the loop told of requests until ctx ends or the loop does; the function it returns waits.
func (s *Scheduler) hearRequests(ctx context.Context) (end func()) {
	if s.cfg.Requests == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.cfg.Requests.Hear(ctx, func(r []Request) {
			select {
			case s.requested <- r:
			case <-ctx.Done():
			}
		})
	}()
	return func() {
		cancel()
		<-over
	}
}

// heedRequests takes in what was asked for. Replicas take turns to look at a request first, as they do with ticks. One that this replica may
// not run is left to the others.
func (s *Scheduler) heedRequests(requests []Request) {
	now := s.now()
	for id, e := range s.errands {
		if now.After(e.Expires.Add(longestPause)) { // it is not heard of any more
			s.waitingErrands.remove(&e.inErrands)
			delete(s.errands, id)
		}
	}
	for _, r := range requests {
		t := s.tasks[r.Job]
		if t == nil || t.foreign || s.errands[r.ID] != nil || len(s.errands) >= maxErrands {
			continue
		}
		e := &errand{Request: r, task: t}
		e.inErrands.value = e
		s.errands[r.ID] = e
		s.putOff(e, now.Add(s.turn(t, r.Created)))
	}
}

// putOff has an errand looked at later; just after it has expired for the last time, so that somebody says so.
func (s *Scheduler) putOff(e *errand, at time.Time) {
	if last := e.Expires.Add(clockSlack); at.After(last) && s.now().Before(last) {
		at = last
	}
	s.waitingErrands.set(&e.inErrands, at)
}

// runErrands looks at what was asked for. A replica that has no place leaves it to the others, until it expires.
func (s *Scheduler) runErrands(now time.Time) {
	for _, e := range s.waitingErrands.take(now, maxErrands) {
		t := s.tasks[e.Job]
		expired := !now.Before(e.Expires.Add(clockSlack))
		switch {
		case t == nil || t.foreign: // since a reload
		case s.places() <= 0 && !expired:
			s.putOff(e, now.Add(heldPause))
		case t.running >= t.PerReplica && !e.bound && !expired: // others may have a place: they go first
			e.bound = true
			s.putOff(e, now.Add(maxRankDelay))
		default:
			s.runErrand(e, t)
		}
	}
}

// runErrand tries to take an errand, in a goroutine that has a place on this replica.
func (s *Scheduler) runErrand(e *errand, t *task) {
	e.task, e.bound = t, t.running >= t.PerReplica
	t.running++
	s.running++
	s.active.add(t.Name, 1)
	isTick := e.Tick.IsZero() || t.names(e.Tick) // found out here, since a reload may change what the task's ticks are
	try := attempt{s, e.Request, t.Job, isTick, e.bound}
	go func() {
		again, term := try.run()
		s.errandOver <- errandResult{e, again, try.job, term}
	}()
}

// settleErrand is told that a try is over.
func (s *Scheduler) settleErrand(e errandResult) {
	s.active.add(e.task.Name, -1)
	e.task.running--
	s.running--
	now := s.now()
	if !e.again.IsZero() && !s.leaving {
		s.putOff(e.errand, e.again)
	}
	if e.term != nil {
		s.roomFor(e.task, e.job, e.term, now)
	}
	s.wake(now, &tick{task: e.task})
}

// attempt is one try of this replica to act on a request.
type attempt struct {
	*Scheduler
	request Request
	job     *Job
	isTick  bool // the request's tick is one of the job, if it has one
	bound   bool // it must not start a run
}

// run returns when to try again, zero if the request is done with; and after the run, if there is one, its term.
func (a attempt) run() (again time.Time, term *election.Term) {
	ctx := a.exec.draining
	r := a.cfg.Requests.Take(context.WithoutCancel(ctx), election.Errand{Job: a.job.Name, ID: a.request.ID, Taker: newRunID(),
		Created: a.request.Created, Expires: a.request.Expires, Lease: errandLease})
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
		return r.Until.Add(watchMargin), nil
	case election.Before:
		return time.Time{}, nil
	case election.CannotTell:
		if !errors.Is(r.Err, election.ErrUnknown) {
			a.log.Error("a request could not be taken", "job", a.job.Name, "request", a.request.ID, "error", r.Err)
			return time.Time{}, nil
		}
	}
	return a.now().Add(heldPause), nil
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
		return a.now().Add(heldPause), nil
	}
	a.execute(term)
	return time.Time{}, term
}

// fault tells why the tick of a request can't be run again.
func (a attempt) fault() string {
	tick := a.request.Tick
	switch {
	case tick.IsZero():
		return ""
	case !a.isTick:
		return tick.UTC().Format(time.RFC3339) + " is no tick of the job"
	case tick.After(a.now()):
		return tick.UTC().Format(time.RFC3339) + " is yet to come"
	}
	return ""
}

// leave gives the request back to whoever comes next.
func (a attempt) leave(right *election.Term) (again time.Time) {
	if err := right.Return(context.Background()); err != nil {
		a.log.Debug("a request could not be given back; others have it when its lease has ended", "request", a.request.ID, "error", err)
	}
	return a.now().Add(heldPause)
}

// begin is the step after which nobody else starts the request. It fails where that is not sure, and then the run is not started.
func (a attempt) begin(ctx context.Context, right *election.Term) bool {
	if ctx.Err() != nil || right.Context().Err() != nil || right.Remaining() < errandLease/2 { // a slow step would find it gone
		a.leave(right)
		return false
	}
	err := right.End(context.Background())
	if errors.Is(err, election.ErrUnknown) { // again: the server remembers what it did
		err = right.End(context.Background())
	}
	if err != nil {
		a.log.Warn("a request is not acted upon: nobody can tell whether others do", "job", a.job.Name, "request", a.request.ID, "error", err)
	}
	return err == nil
}

// slot waits for a slot of the job, as long as the request lasts. why tells that there will be none: the request is decided without a run. Neither a term
// nor why: it is left to others. Where a replica has died over the request, the slot that is held may be the one that it took: nothing is skipped for that.
func (a attempt) slot(ctx context.Context, right *election.Term) (term *election.Term, why string) {
	c := election.Claim{Job: a.job.Name, ID: newRunID(), Trigger: manual, Slots: a.job.Parallel, PerTick: a.job.PerTick, Lease: a.job.Lease,
		Abstain: a.bound}
	doubted := false
	defer func() {
		if doubted && term == nil {
			a.cfg.Claimer.Withdraw(c)
		}
	}()
	for told := false; ctx.Err() == nil && right.Context().Err() == nil; told = true {
		if !a.now().Before(a.request.Expires) {
			return nil, "slots"
		}
		switch r := a.cfg.Claimer.Claim(context.WithoutCancel(ctx), []election.Claim{c})[0]; {
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
	timer := time.NewTimer(min(heldPause, max(a.request.Expires.Sub(a.now()), clockSlack)))
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
		return a.now().Add(heldPause)
	}
	a.dispose(outcome, reason)
	return time.Time{}
}

// refuse decides a request for what is no tick, or none yet. It has no record: that would stand in the history as the outcome of a tick.
func (a attempt) refuse(right *election.Term, why string) (again time.Time) {
	if err := right.End(context.Background()); err != nil {
		return a.now().Add(heldPause)
	}
	a.deny(Failed, why)
	return time.Time{}
}

// dispose tells of a request that has no run. It has a record, as a tick would.
func (a attempt) dispose(outcome Outcome, reason string) {
	a.exec.recorder.add(Record{RunID: a.request.ID, Job: a.job.Name, Tick: a.request.Tick, Trigger: manual, Replica: a.cfg.Replica,
		Outcome: outcome, Reason: reason, Finished: a.now()})
	a.deny(outcome, reason)
}

// deny tells who asked that there is no run.
func (a attempt) deny(outcome Outcome, reason string) {
	a.log.Log(outcome.level(reason, false), "request not run", "job", a.job.Name, "request", a.request.ID, "outcome", string(outcome), "reason", reason)
	a.answer(Answer{Outcome: outcome, Reason: reason})
}

// execute runs the job. Who asked is told at the same time, so that a slow journal holds up nothing.
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

// answerTries is how often at least an answer is told to a journal that does not take it.
const answerTries = 3

// answer tells who asked. What became of the request is told again and again to a journal that does not take it, as long as somebody may wait for that and
// this replica stays: its server may be about to be replaced.
func (a attempt) answer(say Answer) {
	say.Request, say.Replica = a.request.ID, a.cfg.Replica
	tries := answerTries
	if say.Outcome == "" { // that matters little
		tries = 1
	}
	awaited := func() bool {
		return say.Outcome != "" && a.exec.draining.Err() == nil && a.now().Before(a.request.Expires)
	}
	var retry backoff
	for n := 1; ; n++ {
		ctx, cancel := context.WithTimeout(a.exec.parting, recordTimeout)
		err := a.cfg.Requests.Answer(ctx, say)
		cancel()
		if err == nil {
			return
		}
		if n >= tries && !awaited() || !retry.wait(a.exec.parting) {
			a.log.Warn("who asked for a run could not be told of it", "job", a.job.Name, "request", a.request.ID, "error", err)
			return
		}
	}
}
