package election

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A TriggerRequest asks for one run of a job outside its schedule. At most one replica of the cluster begins the run.
type TriggerRequest struct {
	Job, ID string
	// Claimant identifies one call of [Elector.ClaimTrigger]: it must be new for each call. Required.
	Claimant string
	// Created and Expires are by the server's clock. After Expires no replica is granted the request.
	Created, Expires time.Time
	// Lease is the time after which another replica may take over the request of a claimant that died before it began the run.
	Lease time.Duration
}

// expired is the outcome of a request that no replica claimed in time.
const expired = "expired"

// requestLock returns the name of the request's lock, with the hash tag of the job. The lock is not permanent: the server forgets it after a long
// idle time.
func (r TriggerRequest) requestLock() string { return "{" + r.Job + "}:request:" + r.ID }

// lockRequest returns the claim of the only tick of the request's lock. The lock has no schedule, so the first claimant wins the tick.
func (r TriggerRequest) lockRequest() lease.Request {
	return lease.Request{Lock: r.requestLock(), ID: r.Claimant, Lease: r.Lease, Trigger: "manual", Tick: &lease.Tick{
		At: r.Created.Truncate(time.Second), Deadline: r.Expires, IfLate: expired}}
}

// ClaimTrigger claims a trigger request. If the verdict is Granted, the claimant must call [Term.End] on the result's term before it begins the run. If End
// succeeds, no other replica begins the run. If End fails, the claimant must not begin the run, because another replica may. A claimant that calls
// [Term.Undo] leaves the request to other replicas. If the claimant dies before it calls End, another replica can take over after the lease has ended; the
// Attempt of the new term is greater than 1.
//
// The verdict Taken with an Until means that another claimant has the request and has not begun the run: claim again at Until. Taken without an Until means
// that the request is decided. Settled means that this call found the request expired. Before means that an earlier call found it expired.
func (e *Elector) ClaimTrigger(ctx context.Context, r TriggerRequest) Result {
	request := r.lockRequest()
	answer := e.locks.Acquire(ctx, request)
	if answer.Verdict == lease.Decided && answer.Holder == "" && answer.Orphans > 0 {
		return e.adoptTrigger(ctx, r)
	}
	return e.triggerResult(request, answer)
}

// adoptTrigger takes over a request from a claimant that has died.
func (e *Elector) adoptTrigger(ctx context.Context, q TriggerRequest) Result {
	state := e.locks.Inspect(ctx, []lease.InspectRequest{{Lock: q.requestLock()}})[0]
	if state.Err != nil {
		return Result{Verdict: CannotTell, Err: Plain(state.Err)}
	}
	if len(state.Orphans) == 0 { // another claimant was faster
		return Result{Verdict: Taken, Until: state.Now.Add(q.Lease)}
	}
	request := q.lockRequest()
	request.Tick, request.Adopt = nil, state.Orphans[0].ID
	answer := e.locks.Acquire(ctx, request)
	if answer.Verdict == lease.Decided || answer.Verdict == lease.Held {
		return Result{Verdict: Taken, Until: state.Now.Add(q.Lease)}
	}
	r := e.triggerResult(request, answer)
	if r.Verdict == Granted && !state.Now.Before(q.Expires) {
		if err := TermOf(r).End(ctx); err != nil {
			return Result{Verdict: CannotTell, Err: err}
		}
		return Result{Verdict: Settled, Outcome: expired}
	}
	return r
}

// triggerResult returns the result of a claim for the caller. It withdraws a claim with an unknown result, because the next call has another Claimant
// and cannot repeat this claim.
func (e *Elector) triggerResult(request lease.Request, answer Result) Result {
	r := plainResult(answer)
	if r.Verdict == CannotTell || r.Verdict == Unheard {
		e.locks.Withdraw(request, request.ID)
	}
	if r.Verdict == Taken && r.Holder == "" {
		r.Until = time.Time{}
	}
	return r
}
