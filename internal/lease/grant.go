package lease

import (
	"fmt"
	"time"
)

// A Grant is a row that a store has granted to a request.
type Grant struct {
	Slot    int
	Token   Token
	Tick    int64 // the tick of the run, in seconds since 1970; 0 for none
	Attempt int64
	Expiry  int64 // the end of the lease by Redis's clock, in microseconds
	Now     int64 // Redis's clock at the grant, in microseconds
	Known   Known
	// Sent is the local clock before the request was sent. Received is the local clock when the caller got the reply, which may be later than its
	// arrival if several requests shared a round trip.
	Sent, Received time.Duration
	// RenewAfter is the time from Sent to the first renewal.
	RenewAfter time.Duration
	// Provisional is true for a grant with a shortened lease. The first renewal extends the lease to its full length.
	Provisional bool
	// Ticket is private data of the store. The client passes it back with each request about the lease.
	Ticket Ticket
}

// A Ticket is data that a store keeps about a lease besides its row. Its type belongs to the store; it may be nil.
type Ticket any

// Known is the state of a lock as a reply reports it. Instants and durations are in microseconds. Low is in seconds since 1970.
type Known struct {
	Floor, Longest, Low int64
	Ledger              string // the pause and the ledger, joined by [JoinPause]
}

// HoldFor returns the time for which a holder relies on a lease: its length minus 1 % for clock drift and 2 ms for late timers.
func HoldFor(length time.Duration) time.Duration { return length - length/100 - 2*time.Millisecond }

// Left returns the time that was left of a lease of this length at the grant. It is at most length, even if Redis's clock was stepped back.
func (g *Grant) Left(length time.Duration) time.Duration {
	return min(length, time.Duration(g.Expiry-g.Now)*time.Microsecond)
}

// Deadline returns the instant, by the local clock, until which the holder relies on a lease of this length.
func (g *Grant) Deadline(length time.Duration) time.Duration { return g.Sent + HoldFor(g.Left(length)) }

// Check returns an error if the reply took longer than the lease lasts.
func (g *Grant) Check(r Request) error {
	if g.Received < g.Deadline(r.Lease) {
		return nil
	}
	return fmt.Errorf("acquire %q: %w: the reply took longer than the lease of %v", r.Lock, ErrUnknown, time.Duration(g.Expiry-g.Now)*time.Microsecond)
}
