package election

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// A TriggerRequest asks for one run of a job outside its schedule. Exactly one replica of the cluster begins it.
type TriggerRequest struct {
	Job, ID string
	// Claimant is the identity of one attempt to claim the request: a new one each time. Required.
	Claimant string
	// Created and Expires are by the server's clock. From Expires on, the request is granted to no replica.
	Created, Expires time.Time
	// Lease is the time for which the request stays with a claimant that died before it began the run.
	Lease time.Duration
}

// expired is the outcome of a request that no replica claimed in time.
const expired = "expired"

// requestLock returns the name of the request's own lock. It has the hash tag of the job, and is forgotten when it has been idle for long.
func (r TriggerRequest) requestLock() string { return "{" + r.Job + "}:request:" + r.ID }

// lockRequest returns a request for the one tick that the request's lock ever has. The lock knows no schedule, so its first tick is open to the first
// claimant.
func (r TriggerRequest) lockRequest() engine.Request {
	return engine.Request{Lock: r.requestLock(), ID: r.Claimant, Lease: r.Lease, Trigger: "manual", Tick: &engine.Tick{
		At: r.Created.Truncate(time.Second), Deadline: r.Expires, IfLate: expired}}
}

// ClaimTrigger claims a request. A claimant that is granted it begins the run by [Term.End], the one step that decides: after its success no other
// claimant ever begins the request, and after its failure another one may. [Term.Undo] leaves the request to others. A claimant that dies before it
// began is replaced when its lease has ended, and the attempt of the next term is greater than 1.
//
// Taken with an Until means that another claimant has not begun yet: ask again then. Taken without an Until means that the request is decided.
// Settled means that this call found it expired, Before that an earlier call did.
func (e *Elector) ClaimTrigger(ctx context.Context, r TriggerRequest) Result {
	request := r.lockRequest()
	answer := e.locks.Acquire(ctx, request)
	if answer.Verdict == engine.Decided && answer.Holder == "" && answer.Orphans > 0 {
		return e.adoptTrigger(ctx, r)
	}
	return e.triggerResult(request, answer)
}

// adoptTrigger takes the place of a claimant that has died.
func (e *Elector) adoptTrigger(ctx context.Context, q TriggerRequest) Result {
	state := e.locks.Inspect(ctx, []engine.InspectRequest{{Lock: q.requestLock()}})[0]
	if state.Err != nil {
		return Result{Verdict: CannotTell, Err: Plain(state.Err)}
	}
	if len(state.Orphans) == 0 { // another claimant was faster
		return Result{Verdict: Taken, Until: state.Now.Add(q.Lease)}
	}
	request := q.lockRequest()
	request.Tick, request.Adopt = nil, state.Orphans[0].ID
	answer := e.locks.Acquire(ctx, request)
	if answer.Verdict == engine.Decided || answer.Verdict == engine.Held {
		return Result{Verdict: Taken, Until: state.Now.Add(q.Lease)}
	}
	r := e.triggerResult(request, answer)
	if r.Verdict == Granted && !state.Now.Before(q.Expires) {
		if err := r.Term.End(ctx); err != nil {
			return Result{Verdict: CannotTell, Err: err}
		}
		return Result{Verdict: Settled, Outcome: expired}
	}
	return r
}

// triggerResult converts an answer. If the answer to a grant was lost, the grant is withdrawn, because the next try has another claimant.
func (e *Elector) triggerResult(request engine.Request, answer engine.Answer) Result {
	r := resultOf(answer)
	if r.Verdict == CannotTell || r.Verdict == Unheard {
		e.locks.Withdraw(request, request.ID)
	}
	if r.Verdict == Taken && r.By == "" {
		r.Until = time.Time{}
	}
	return r
}
