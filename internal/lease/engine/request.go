package engine

import (
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// An Answer is the answer to a [Request].
type Answer struct {
	Verdict Verdict
	ID      string // the lease id of the request
	Lease   *Lease
	Until   time.Time // by Redis's clock
	Holder  string    // the owner of a held row
	Outcome string    // the outcome of a decided tick: IfHeld or IfLate of a request, the outcome of a pause, or "granted"
	Orphans int       // the number of runs of this lock whose outcome no replica has recorded yet: see [Client.Inspect]
	Err     error
}

// Unsure reports whether the outcome is unknown and a repeated request with the same id may find it out.
func (a Answer) Unsure() bool { return lease.Unsure(a.Verdict, a.Err) }

// answerOf converts a result to an answer. For a grant, it adds a lease to the keeper.
func (c *Client) answerOf(r *Request, result *lease.Result) Answer {
	a := Answer{Verdict: result.Verdict, ID: r.ID, Until: result.Until, Holder: result.Holder, Outcome: result.Outcome, Orphans: result.Orphans, Err: result.Err}
	if a.Verdict == Granted {
		a.Lease = c.keeper.add(newLease(c, r, &result.Grant))
	}
	return a
}
