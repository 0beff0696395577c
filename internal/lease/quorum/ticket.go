package quorum

import (
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// SpreadAfter is the time after which the first renewal brings a lease from a majority to all nodes. If some nodes do not answer, the next renewals
// follow after pauses that double, up to a third of the lease.
const SpreadAfter = 50 * time.Millisecond

// A ticket is the state that the store keeps for a lease: see [lease.Ticket].
type ticket struct {
	narrow bool         // no more than a majority was asked for the row
	repair atomic.Int64 // a time.Duration: the next pause while some nodes may not have the lease
}

func newTicket(narrow bool) *ticket {
	t := &ticket{narrow: narrow}
	t.repair.Store(int64(2 * SpreadAfter))
	return t
}

// isNarrow reports whether no more than a majority was asked for a row.
func isNarrow(row *lease.HeldRow) bool {
	t, ok := row.Grant.Ticket.(*ticket)
	return ok && t.narrow
}

// nextRenewal returns the time until the next renewal of a lease that was just renewed: after, or less if some nodes may not have the lease.
func nextRenewal(row *lease.HeldRow, after time.Duration, everywhere bool) time.Duration {
	t, ok := row.Grant.Ticket.(*ticket)
	if !ok {
		return after
	}
	if everywhere {
		t.repair.Store(int64(SpreadAfter))
		return after
	}
	repair := time.Duration(t.repair.Load())
	t.repair.Store(int64(min(2*repair, row.Request.Lease)))
	return min(after, repair)
}
