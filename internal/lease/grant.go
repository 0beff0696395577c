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
	Expiry  int64 // the end of the lease by the server's clock, in microseconds
	Now     int64 // the server's clock at the grant, in microseconds
	Known   Known
	// Sent is the local clock before the request was sent. Received is the local clock when its caller could have the reply, after all requests that
	// it travelled with and waited for.
	Sent, Received time.Duration
	// RenewAfter is the time from Sent to the first renewal.
	RenewAfter time.Duration
	// Provisional is true for a brief lease, which has its length only after a renewal.
	Provisional bool
	// Ticket belongs to the store, which gets it back with each request about the lease.
	Ticket Ticket
}

// A Ticket is what a store knows of a lease besides its row: nil, or of a type of that store.
type Ticket any

// Known is the state of a lock in a reply. Instants and lengths are in microseconds, Low is in seconds since 1970.
type Known struct {
	Floor, Longest, Low int64
	Ledger              string // with the pause: see [JoinPause]
}

// HoldFor returns the part of a lease that its holder relies on: less 1 % for clocks of different rates, and 2 ms for timers.
func HoldFor(length time.Duration) time.Duration { return length - length/100 - 2*time.Millisecond }

// Left returns how much of a lease of this length was left when it was granted. The server's clock may have been stepped back.
func (g *Grant) Left(length time.Duration) time.Duration {
	return min(length, time.Duration(g.Expiry-g.Now)*time.Microsecond)
}

// Deadline returns the instant until which the holder of a lease of this length relies on it, by the local clock.
func (g *Grant) Deadline(length time.Duration) time.Duration { return g.Sent + HoldFor(g.Left(length)) }

// Check returns an error for a grant whose reply took longer than its lease lasts.
func (g *Grant) Check(r Request) error {
	if g.Received < g.Deadline(r.Lease) {
		return nil
	}
	return fmt.Errorf("acquire %q: %w: the reply took longer than the lease of %v", r.Lock, ErrUnknown, time.Duration(g.Expiry-g.Now)*time.Microsecond)
}
