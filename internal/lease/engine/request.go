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
	Until   time.Time // by the server's clock
	Holder  string    // the owner of a row
	Outcome string    // of a settled tick: IfHeld or IfLate of a request, or the text of a pause; "granted" if it was granted
	Orphans int       // the number of runs of this lock whose outcome no replica has recorded yet: see [Client.Inspect]
	Err     error
}

// Unsure reports whether nothing is known, and another request with the same id may find out more.
func (a Answer) Unsure() bool { return lease.Unsure(a.Verdict, a.Err) }

// answerOf returns the answer for a result, with the lease of a grant.
func (c *Client) answerOf(r *Request, result *lease.Result) Answer {
	a := Answer{Verdict: result.Verdict, ID: r.ID, Until: result.Until, Holder: result.Holder, Outcome: result.Outcome, Orphans: result.Orphans, Err: result.Err}
	if a.Verdict == Granted {
		a.Lease = c.keeper.add(newLease(c, r, &result.Grant))
	}
	return a
}
