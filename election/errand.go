package election

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/locking"
)

// Errand is something that one replica of the cluster is to do, once, and that no schedule asks for.
type Errand struct {
	Job, ID string
	// Taker is the identity of this try to take it: a new one each time. Required.
	Taker string
	// Created and Expires are by the server's clock; from Expires on nobody gets it.
	Created, Expires time.Time
	// Lease is how long a taker that has died before it began is waited for.
	Lease time.Duration
}

// expired is the outcome of an errand that nobody took in time.
const expired = "expired"

// lock names the errand's own lock. It has the hash tag of the job, and is forgotten when it has been idle for long.
func (e Errand) lock() string { return "{" + e.Job + "}:request:" + e.ID }

// request asks for the one tick that the lock of an errand ever has. The lock knows no schedule, so that its first tick is open to whoever comes first.
func (e Errand) request() locking.Request {
	return locking.Request{Lock: e.lock(), ID: e.Taker, Lease: e.Lease, Trigger: "manual", Tick: &locking.Tick{
		At: e.Created.Truncate(time.Second), Deadline: e.Expires, IfLate: expired}}
}

// Take asks for an errand. Who is granted it has taken it, and begins it by [Term.End], which is the one step that decides: when that has worked nobody
// else will ever begin it, and when it has failed the errand may be somebody else's. [Term.Return] leaves it to others. A taker that dies before it began is
// replaced when its lease has ended, and the attempt of the next one's term is greater than 1.
//
// Taken with an Until tells of somebody who has not begun yet: ask again then. Without one the errand is done with. Settled tells that this request found it
// expired, Before that another one did.
func (e *Elector) Take(ctx context.Context, errand Errand) Result {
	request := errand.request()
	answer := e.locks.Acquire(ctx, request)
	if answer.Verdict == locking.Decided && answer.Holder == "" && answer.Orphans > 0 {
		return e.inherit(ctx, errand)
	}
	return e.taken(request, answer)
}

// inherit takes the place of a taker that has died.
func (e *Elector) inherit(ctx context.Context, errand Errand) Result {
	state := e.locks.Look(ctx, []locking.LookRequest{{Lock: errand.lock()}})[0]
	if state.Err != nil {
		return Result{Verdict: CannotTell, Err: Plain(state.Err)}
	}
	if len(state.Orphans) == 0 { // somebody was faster
		return Result{Verdict: Taken, Until: state.Now.Add(errand.Lease)}
	}
	request := errand.request()
	request.Tick, request.Adopt = nil, state.Orphans[0].ID
	answer := e.locks.Acquire(ctx, request)
	if answer.Verdict == locking.Decided || answer.Verdict == locking.Held {
		return Result{Verdict: Taken, Until: state.Now.Add(errand.Lease)}
	}
	r := e.taken(request, answer)
	if r.Verdict == Granted && !state.Now.Before(errand.Expires) {
		if err := r.Term.End(ctx); err != nil {
			return Result{Verdict: CannotTell, Err: err}
		}
		return Result{Verdict: Settled, Outcome: expired}
	}
	return r
}

// taken is the result. What may have been granted without an answer is given back: the next try is another taker's.
func (e *Elector) taken(request locking.Request, answer locking.Answer) Result {
	r := result(answer)
	if r.Verdict == CannotTell {
		e.locks.Withdraw(request, request.ID)
	}
	if r.Verdict == Taken && r.By == "" {
		r.Until = time.Time{}
	}
	return r
}
