package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
	"github.com/cronclave/cronclave/scheduler/run"
)

const (
	// requestLease is the time after which another replica may take over the request of a replica that died before it began the run.
	requestLease = 5 * time.Second
	// maxRequests is the maximum number of requests that a replica remembers.
	maxRequests = 1000
)

// A pendingRequest is a request that this replica has received. It belongs to the loop.
type pendingRequest struct {
	Request
	task  *task
	bound bool // this replica has no free place for the job, and must not start the run

	queued agenda.Entry[*pendingRequest]
}

// A handledRequest is the result of one attempt on a request. again is the time of the next attempt, or zero if the request is decided.
type handledRequest struct {
	*pendingRequest
	again time.Time
	rules *agenda.Rules
	term  *election.Term // the ended term of the run; nil if there was no run
}

// requests has the trigger requests that this replica may run.
type requests struct {
	*core
	starts     *starts
	recoveries *recoveries
	requested  chan []Request
	over       chan handledRequest        // receives the results of requestHandlers
	known      map[string]*pendingRequest // by request id, until the request has expired
	due        agenda.Queue[*pendingRequest]
}

// handleRequests queues new requests. A replica with a later rank waits longer, as for ticks. Requests for jobs that this replica must not run are
// ignored.
func (q *requests) handleRequests(requests []Request) {
	now := q.now()
	for id, e := range q.known {
		if now.After(e.Expires.Add(longestPause)) { // Subscribe no longer returns the request
			q.due.Remove(&e.queued)
			delete(q.known, id)
		}
	}
	for _, r := range requests {
		t := q.tasks[r.Job]
		if t == nil || t.Elsewhere || q.known[r.ID] != nil || len(q.known) >= maxRequests {
			continue
		}
		e := &pendingRequest{Request: r, task: t}
		e.queued.Value = e
		q.known[r.ID] = e
		q.putOff(e, now.Add(q.cfg.turnDelay(t, r.Created)))
	}
}

// putOff schedules the next attempt. The last attempt is just after the request expires, so that a replica records the expiry.
func (q *requests) putOff(e *pendingRequest, at time.Time) {
	if last := e.Expires.Add(agenda.ClockSlack); at.After(last) && q.now().Before(last) {
		at = last
	}
	q.due.Set(&e.queued, at)
}

// tryRequests starts an attempt for each due request. If this replica has no free place, tryRequests postpones the request, and another replica may run it
// first. An expired request needs no place.
func (q *requests) tryRequests(now time.Time) {
	for _, e := range q.due.Take(now, maxRequests) {
		t := q.tasks[e.Job]
		expired := !now.Before(e.Expires.Add(agenda.ClockSlack))
		switch {
		case t == nil || t.Elsewhere: // after a reload, this replica must not run the job; the request is left to the other replicas
		case q.places.free() <= 0 && !expired:
			q.putOff(e, now.Add(heldPause))
		case t.Running >= t.PerReplica && !e.bound && !expired: // other replicas may have a free place for the job, so they go first
			e.bound = true
			q.putOff(e, now.Add(maxRankDelay))
		default:
			q.tryRequest(e, t)
		}
	}
}

// tryRequest makes an attempt on a request in a new goroutine, which occupies a place on this replica.
func (q *requests) tryRequest(e *pendingRequest, t *task) {
	e.task, e.bound = t, t.Running >= t.PerReplica
	q.places.takePlace(t)
	q.starts.active.add(t.Name, 1)
	isTick := e.Tick.IsZero() || t.mayHaveTick(e.Tick) // computed here, because only the loop may use the task
	try := requestHandler{&q.cfg, q.exec, q.now, q.cfg.ownIdentity(), e.Request, t.Rules, isTick, e.bound}
	go func() {
		again, term := try.handleRequest()
		q.over <- handledRequest{e, again, try.rules, term}
	}()
}

func (q *requests) settleHandled(e handledRequest) {
	q.starts.active.add(e.task.Name, -1)
	q.places.releasePlace(e.task)
	now := q.now()
	if !e.again.IsZero() && !q.leaving {
		q.putOff(e.pendingRequest, e.again)
	}
	if e.term != nil {
		q.recoveries.roomFor(e.task, e.rules, e.term, now)
	}
	q.wakeParked(now, e.task)
}

// A requestHandler makes one attempt to claim and run a trigger request.
type requestHandler struct {
	cfg      *Config
	exec     *run.Executor
	now      func() time.Time
	identity string // the identity of this replica
	request  Request
	rules    *agenda.Rules
	isTick   bool // false if the request has a tick that is not a tick of the job
	bound    bool // this replica has no free place for the job, and must not start the run
}

// handleRequest claims the request and, if it is granted, executes the run. again is the time of the next attempt, or zero if the request is decided.
// term is the ended term of the run, or nil if there was no run.
func (h requestHandler) handleRequest() (again time.Time, term *election.Term) {
	ctx := h.exec.Draining()
	r := h.cfg.Requests.ClaimTrigger(context.WithoutCancel(ctx), election.TriggerRequest{Job: h.rules.Name, ID: h.request.ID, Claimant: newRunID(),
		Created: h.request.Created, Expires: h.request.Expires, Lease: requestLease})
	switch r.Verdict {
	case election.Granted:
		return h.handleGranted(ctx, election.TermOf(r))
	case election.Settled:
		h.recordNotRun(run.Verdict{Outcome: run.Missed, Reason: run.ReasonLate})
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
			h.cfg.Logger.Error("a request could not be claimed", "job", h.rules.Name, "request", h.request.ID, "error", r.Err)
			return time.Time{}, nil
		}
	}
	return h.now().Add(heldPause), nil
}

// handleGranted handles a request that was granted to this replica. right is the term of the request: while it lasts, no other replica may run the request.
func (h requestHandler) handleGranted(ctx context.Context, right *election.Term) (again time.Time, term *election.Term) {
	if why := h.tickFault(); why != "" {
		// The request gets no record, because the history would show the record as the outcome of a tick.
		return h.endWithoutRun(right, run.Verdict{Outcome: run.Failed, Reason: run.Reason(why)}, h.answerNotRun), nil
	}
	term, decided := h.awaitSlot(ctx, right)
	switch {
	case decided != run.Verdict{}:
		return h.endWithoutRun(right, decided, h.recordNotRun), nil
	case term == nil:
		return h.giveBack(right), nil
	}
	if h.exec.CheckStart() != nil { // before commitRequest, after which no other replica can run the request
		_ = term.Undo(context.Background()) // an error is ignored: Undo goes on in the background
		return h.giveBack(right), nil
	}
	if !h.commitRequest(ctx, right) {
		_ = term.Undo(context.Background()) // an error is ignored: Undo goes on in the background
		return h.now().Add(heldPause), nil
	}
	h.executeRun(term)
	return time.Time{}, term
}

func (h requestHandler) tickFault() string {
	tick := h.request.Tick
	switch {
	case tick.IsZero():
		return ""
	case !h.isTick:
		return tick.UTC().Format(time.RFC3339) + " is no tick of the job"
	case tick.After(h.now()):
		return tick.UTC().Format(time.RFC3339) + " is yet to come"
	}
	return ""
}

// giveBack gives the request back, so that any replica can claim it. It returns the time of this replica's next attempt.
func (h requestHandler) giveBack(right *election.Term) (again time.Time) {
	if err := right.Undo(context.Background()); err != nil {
		h.cfg.Logger.Debug("a request could not be given back; others have it when its lease has ended", "request", h.request.ID, "error", err)
	}
	return h.now().Add(heldPause)
}

// commitRequest ends the term right, after which no other replica can run the request. It returns false if the result is uncertain: then the run must
// not start.
func (h requestHandler) commitRequest(ctx context.Context, right *election.Term) bool {
	if ctx.Err() != nil || right.Context().Err() != nil || right.Remaining() < requestLease/2 { // End may take so long that the lease expires first
		h.giveBack(right)
		return false
	}
	err := right.End(context.Background())
	if errors.Is(err, election.ErrUnknown) { // a second End returns the result of the first
		err = right.End(context.Background())
	}
	if err != nil {
		h.cfg.Logger.Warn("trigger request not started: cannot confirm that no other replica runs it", "job", h.rules.Name, "request", h.request.ID, "error", err)
	}
	return err == nil
}

// awaitSlot waits for a slot of the job until the request expires. If it returns a verdict in decided, the request is decided without a run. If both
// results are empty, the request is left to other replicas. If a previous claimant of the request has died, the request is not skipped for overlap,
// because that claimant may still hold the slot.
func (h requestHandler) awaitSlot(ctx context.Context, right *election.Term) (term *election.Term, decided run.Verdict) {
	c := election.Claim{Lock: election.JobLock(h.rules.Name), ID: newRunID(), Trigger: run.Manual, Slots: h.rules.Parallel, Lease: h.rules.Runs.Lease,
		Abstain: h.bound, Memo: election.Memo(h.identity, h.request.Expires, time.Time{})}
	var none run.Verdict
	doubted := false
	defer func() {
		if doubted && term == nil {
			h.cfg.Claimer.Withdraw(c)
		}
	}()
	for told := false; ctx.Err() == nil && right.Context().Err() == nil; told = true {
		if !h.now().Before(h.request.Expires) {
			return nil, run.Verdict{Outcome: run.Missed, Reason: run.ReasonSlots}
		}
		switch r := h.cfg.Claimer.Claim(context.WithoutCancel(ctx), []election.Claim{c})[0]; {
		case r.Verdict == election.Granted:
			return election.TermOf(r), none
		case r.Verdict == election.CannotTell && !errors.Is(r.Err, election.ErrUnknown):
			return nil, run.Verdict{Outcome: run.Failed, Reason: run.Reason(r.Err.Error())}
		case r.Verdict == election.CannotTell:
			doubted = true
		case r.Verdict == election.Unheard:
			if awaitWithdrawal(h.exec.Draining(), h.cfg, c) {
				c.ID, doubted = newRunID(), false
				continue
			}
		case r.Verdict == election.Held && h.bound && r.Holder == "": // a slot is free, but this replica must not take it
			return nil, none
		case r.Verdict == election.Held && right.Attempt() == 1 && h.rules.Overlap == agenda.Skip:
			return nil, run.Verdict{Outcome: run.Skipped, Reason: run.ReasonOverlap}
		}
		if !told {
			h.sendAnswer(Answer{})
		}
		h.restBetween(ctx, right)
	}
	return nil, none
}

func (h requestHandler) restBetween(ctx context.Context, right *election.Term) {
	timer := time.NewTimer(min(heldPause, max(h.request.Expires.Sub(h.now()), agenda.ClockSlack)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-right.Context().Done():
	}
}

// endWithoutRun decides the request without a run, and passes the outcome to report. again is zero if this succeeded.
func (h requestHandler) endWithoutRun(right *election.Term, verdict run.Verdict, report func(run.Verdict)) (again time.Time) {
	if err := right.End(context.Background()); err != nil {
		return h.now().Add(heldPause)
	}
	report(verdict)
	return time.Time{}
}

func (h requestHandler) recordNotRun(verdict run.Verdict) {
	h.exec.Recorder().Add(run.Record{RunID: h.request.ID, Job: h.rules.Name, Tick: h.request.Tick, Trigger: run.Manual, Replica: h.cfg.Replica,
		Outcome: verdict.Outcome, Reason: verdict.Reason, Finished: h.now()})
	h.answerNotRun(verdict)
}

func (h requestHandler) answerNotRun(v run.Verdict) {
	h.cfg.Logger.Log(v.LogLevel(false), "trigger request not run", "job", h.rules.Name, "request", h.request.ID, "outcome", string(v.Outcome), "reason", string(v.Reason))
	h.sendAnswer(Answer{Outcome: v.Outcome, Reason: v.Reason})
}

// executeRun executes the run. It sends the answer in parallel, so that a slow answer does not delay the run.
func (h requestHandler) executeRun(term *election.Term) {
	g := &run.Grant{Job: h.rules.Runs, Term: term, Insist: h.request.Expires,
		Run: run.Run{ID: term.ID(), Job: h.rules.Name, Tick: h.request.Tick, Trigger: run.Manual, Slot: term.Slot(), Slots: h.rules.Parallel,
			Attempt: term.Attempt(), Token: term.Token()}}
	told := make(chan struct{})
	go func() {
		defer close(told)
		h.sendAnswer(Answer{Outcome: run.Running, RunID: g.Run.ID})
	}()
	h.exec.Execute(context.Background(), g)
	<-told
}

// answerTries is the minimum number of attempts to deliver an outcome before sendAnswer gives up.
const answerTries = 3

// sendAnswer sends an answer to the requester. If the answer has an outcome, it retries until the outcome is delivered, the request expires, or the
// drain begins, because Redis may be down for a while.
func (h requestHandler) sendAnswer(say Answer) {
	say.Request, say.Replica = h.request.ID, h.cfg.Replica
	tries := answerTries
	if say.Outcome == "" { // a progress report may get lost
		tries = 1
	}
	awaited := func() bool {
		return say.Outcome != "" && h.exec.Draining().Err() == nil && h.now().Before(h.request.Expires)
	}
	retry := newBackoff()
	for n := 1; ; n++ {
		ctx, cancel := context.WithTimeout(h.exec.Parting(), run.RecordTimeout)
		err := h.cfg.Requests.Answer(ctx, say)
		cancel()
		if err == nil {
			return
		}
		if n >= tries && !awaited() || !retry.Wait(h.exec.Parting()) {
			h.cfg.Logger.Warn("cannot deliver trigger answer", "job", h.rules.Name, "request", h.request.ID, "error", err)
			return
		}
	}
}
