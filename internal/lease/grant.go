package lease

import (
	"fmt"
	"time"
)

// Grant is a row that a store has given to a request.
type Grant struct {
	Slot    int
	Token   Token
	Tick    int64 // of its run, in seconds since 1970; 0 for none
	Attempt int64
	Expiry  int64 // by the server's clock, in microseconds: the lease ends then
	Now     int64 // and what that clock showed
	Known   Known
	// Sent is the local clock before the request was sent, and Received when its caller could have the reply, after all requests that it
	// travelled with and waited for.
	Sent, Received time.Duration
	// RenewAfter is when the lease is to be renewed first, counted from Sent.
	RenewAfter time.Duration
	// Provisional: it is brief, and has its length only when it is renewed.
	Provisional bool
	// Ticket is the store's own. It gets it back with each request about the lease.
	Ticket Ticket
}

// Ticket is what a store knows of a lease besides its row: nil, or of a type of that store.
type Ticket any

// Known is what a reply says of a lock. Instants and lengths are microseconds, Low is in seconds since 1970.
type Known struct {
	Floor, Longest, Low int64
	Ledger              string // with the pause, see [JoinPause]
}

// HoldFor is how much of a lease its holder relies on: less 1 % for clocks of different rates, and 2 ms for timers.
func HoldFor(length time.Duration) time.Duration { return length - length/100 - 2*time.Millisecond }

// Left is how much of a lease of this length was left when it was granted. The server's clock may have been stepped back.
func (g *Grant) Left(length time.Duration) time.Duration {
	return min(length, time.Duration(g.Expiry-g.Now)*time.Microsecond)
}

// Deadline is until when the holder of a lease of this length relies on it: an instant of the local clock.
func (g *Grant) Deadline(length time.Duration) time.Duration { return g.Sent + HoldFor(g.Left(length)) }

// Check refuses a grant that took longer to arrive than it lasts.
func (g *Grant) Check(r Request) error {
	if g.Received < g.Deadline(r.Lease) {
		return nil
	}
	return fmt.Errorf("acquire %q: %w: the reply took longer than the lease of %v", r.Lock, ErrUnknown, time.Duration(g.Expiry-g.Now)*time.Microsecond)
}
