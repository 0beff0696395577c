package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxBatch is the maximum number of requests in one round trip. It is bounded because Redis executes the requests one after the other.
const MaxBatch = 1000

// A Store keeps locks on one Redis master, or on a quorum of independent masters. [Client] and package locking, which call it, validate requests,
// renew leases, and run background work.
type Store interface {
	// Acquire executes the requests. It calls answer with the index of a request as soon as the result of this request is known, so that the caller
	// renews a granted lease while other requests are still under way. It calls answer from the caller's goroutine.
	Acquire(ctx context.Context, requests []Request, answer func(place int, r Result))
	// Wait waits until the request is granted or ctx ends. After an error, the request may still be granted.
	Wait(ctx context.Context, r Request) (Grant, error)
	// Release repeats its request until Redis has ended the lease, or ctx ends.
	Release(ctx context.Context, r ReleaseRequest) (Released, error)
	// ReleaseSoon is Release for at most twice the timeout of a round trip, counted from the local instant begun.
	ReleaseSoon(ctx context.Context, r ReleaseRequest, begun time.Duration) (Released, error)
	// Renew sends one request for each lease, and returns the results in the same order.
	Renew(ctx context.Context, batch []Renewal) []Renewed
	// RenewAfter returns the time until the next renewal of a lease. left is the remaining time of the lease.
	RenewAfter(left time.Duration) time.Duration
	// RecordAttempt records the proposed attempt of a lease. It does nothing in a store whose renewals record the attempt.
	RecordAttempt(row *HeldRow, attempt int64) error
	// MarkSucceeded records that the work of a lease has succeeded. With followed, it also records the outcome of the tick for followers.
	MarkSucceeded(ctx context.Context, row *HeldRow, followed bool) error

	// Inspect, Stop and Pause return one answer for each request, in order.
	Inspect(ctx context.Context, requests []InspectRequest) []State
	Stop(ctx context.Context, requests []StopRequest) []StopAnswer
	Pause(ctx context.Context, requests []PauseRequest) []PauseAnswer
	// TakePause gives a permanent lock the pause of another permanent lock, or the end of its pause, unless its own pause was changed later.
	TakePause(ctx context.Context, from, lock string) error
	// DeleteOrphans deletes orphans whose outcome was recorded.
	DeleteOrphans(ctx context.Context, lock string, ids []string) error

	// ServerTime returns Redis's time. It calls Redis only before the first reply. Estimate returns an estimate of Redis's time at a local instant, and
	// Margin the maximum error of the estimate, without a call.
	ServerTime(ctx context.Context) (time.Time, error)
	Estimate(local time.Duration) (micros int64, known bool)
	Margin(local time.Duration) time.Duration
	// RoundTrips returns the number of round trips that a request needs.
	RoundTrips() int

	Close() error
}

// The optional methods of a store. Only a store on one master has them: see [StoreAs].
type (
	// A Compacter has a faster Acquire for simple requests. ok is false if the request needs Acquire.
	Compacter interface {
		AcquireCompact(ctx context.Context, r Request) (result Result, ok bool)
	}
	// A SetLocker grants a row in each of several locks, or in none. If grants is nil, refusal is the result, and refused is the name of the lock that
	// refused, if one did.
	SetLocker interface {
		AcquireSet(ctx context.Context, requests []Request) (grants []Grant, refusal Result, refused string)
	}
	// A Fencer stores the greatest token of a resource.
	Fencer interface {
		Pass(ctx context.Context, resource string, idle time.Duration, token Token) error
	}
	// A Remover deletes locks that were not used since an instant.
	Remover interface {
		Remove(ctx context.Context, locks []string, unusedSince time.Time) (removed []bool, err error)
	}
	// An EventPublisher publishes grants and, by the name of the lock, releases. It calls a function with the events of other clients.
	EventPublisher interface {
		Publish(ctx context.Context, granted []GrantedRow, released []string) error
		Subscribe(ctx context.Context, f func([]GrantEvent))
	}
)

// StoreAs returns the store as a T. If the store does not implement T, the error is [ErrQuorum], with what as the name of the operation.
func StoreAs[T any](store Store, what string) (T, error) {
	s, ok := store.(T)
	if !ok {
		return s, fmt.Errorf("%s: %w", what, ErrQuorum)
	}
	return s, nil
}

// A Result is the result of a [Request].
type Result struct {
	Verdict Verdict
	ID      string    // the lease id of the request; set by [Client]
	Run     Run       // the held lease, if Granted; set by [Client]
	Grant   Grant     // the granted row, if Granted
	Until   time.Time // by Redis's clock; its meaning depends on Verdict
	Holder  string    // the owner of a held slot
	Outcome string    // the outcome of a decided tick: IfHeld or IfLate of a request, the outcome of a pause, or [OutcomeGranted]
	Orphans int       // the number of orphans of the lock
	Err     error
}

// Failed returns the result of a request whose outcome is unknown.
func Failed(err error) Result { return Result{Verdict: Unknown, Err: err} }

// Unsure reports whether the outcome is unknown, and a repeated request with the same id may get it.
func (r Result) Unsure() bool {
	return r.Verdict == Unknown && errors.Is(r.Err, ErrUnknown) && !errors.Is(r.Err, ErrRefused)
}

// Distinguished returns the result with [Taken] or [Before] in place of [Decided].
func (r Result) Distinguished() Result {
	switch {
	case r.Verdict != Decided:
	case r.Outcome == OutcomeGranted || r.Holder != "":
		r.Verdict, r.Outcome = Taken, ""
	default:
		r.Verdict = Before
	}
	return r
}

// A HeldRow has the request and the grant of a row that this client holds. It does not change.
type HeldRow struct {
	Request Request
	Grant   Grant
}

// A Renewal asks for the renewal of a lease.
type Renewal struct {
	Row     *HeldRow
	Attempt int64 // the newest attempt number that the holder proposes
	Aside   bool  // an extra renewal to record the attempt; it does not replace the next regular renewal
}

// A Renewed is the result of a [Renewal]. If the outcome is unknown, Done and Lost are both false.
type Renewed struct {
	Done bool
	Lost bool
	Why  string        // the reason, if the lease is lost
	Left time.Duration // the time until the lease ends without another renewal, counted from Sent
	Stop string        // the reason of a request to stop; "" without one
	Sent time.Duration // the local clock before the request was sent
	Next time.Duration // the time of the next renewal, counted from Sent
	Err  error
}

// A releaseMode is the way in which a lease ends.
type releaseMode int

// The release modes. The scripts use the same numbers.
const (
	ReleaseEnd      releaseMode = iota // the work is over
	ReleaseUndo                        // the work never began: the tick is open again
	ReleaseHandOver                    // another client continues the work: the run is an orphan, whose last attempt is Attempt
)

// The outcomes of a tick that a release keeps for followers.
const (
	OutcomeFailed    = "0"
	OutcomeSucceeded = "1"
)

// A ReleaseRequest ends a lease.
type ReleaseRequest struct {
	Row     *HeldRow
	Mode    releaseMode
	Attempt int
	Outcome string // for followers: [OutcomeFailed] or [OutcomeSucceeded]; "" for none
	Held    bool   // the lease had not ended when its release began
	Doubt   bool   // an earlier try may have released the held lease, so a missing row does not prove that the lease was lost
	Fresh   bool   // the lease was never renewed, so Grant.Ticket is still valid
	Acked   bool   // Release waits until enough Redis replicas have the write
}

// Released is the answer of a store to a [ReleaseRequest].
type Released string

// The answers.
const (
	ReleasedNow  Released = "released"
	ReleasedGone Released = "gone" // Redis no longer had the row
)

// Sure returns the answer that counts. This is [ReleasedNow] if the row is gone and an earlier try may have released it.
func (r ReleaseRequest) Sure(answer Released) Released {
	if r.Doubt && answer == ReleasedGone {
		return ReleasedNow
	}
	return answer
}

// UnknownSlot is the slot in a release whose sender does not know which slot was granted, if any.
const UnknownSlot = -1

// Withdrawal returns the release that undoes the grant of a request, if Redis has granted it.
func Withdrawal(r Request) ReleaseRequest {
	return ReleaseRequest{Row: &HeldRow{Request: r, Grant: Grant{Slot: UnknownSlot}}, Mode: ReleaseUndo}
}

// A Grant is a row that a store has granted to a request.
type Grant struct {
	Slot    int
	Token   Token
	Tick    int64 // the tick of the run, in seconds since 1970; 0 for none
	Attempt int64
	Expiry  int64 // the end of the lease by Redis's clock, in microseconds
	Now     int64 // Redis's clock in the reply, in microseconds
	Known   Known
	// Sent is the local clock before the request was sent. Received is the local clock when the caller got the reply. If several requests share a round
	// trip, the reply may have arrived before Received.
	Sent, Received time.Duration
	// RenewAfter is the time from Sent to the first renewal.
	RenewAfter time.Duration
	// Provisional is true for a grant with a shortened lease. The first renewal extends the lease to its full length.
	Provisional bool
	// Ticket is for the store, which gets it back with each request about the lease.
	Ticket Ticket
}

// A Ticket is data about a lease, besides its row, that only the store uses. It may be nil.
type Ticket any

// Known is the state of a lock in a reply. Floor is the greatest token of the lock, and Longest its longest lease in microseconds. All ticks up to
// Low, in seconds since 1970, are decided.
type Known struct {
	Floor, Longest, Low int64
	Ledger              string // the pause and the ledger, joined by [JoinPause]
}

// HoldFor returns the time for which a holder relies on a lease: its length minus 1 % for clock drift and 2 ms for late timers.
func HoldFor(length time.Duration) time.Duration { return length - length/100 - 2*time.Millisecond }

// Left returns the remaining time, at the instant Now, of a lease of this length. It is at most length, even if Redis's clock was stepped back.
func (g *Grant) Left(length time.Duration) time.Duration {
	return min(length, time.Duration(g.Expiry-g.Now)*time.Microsecond)
}

// Deadline returns the instant, by the local clock, until which the holder relies on a lease of this length.
func (g *Grant) Deadline(length time.Duration) time.Duration { return g.Sent + HoldFor(g.Left(length)) }

// Check returns an error if the lease had ended for its holder before the reply was received.
func (g *Grant) Check(r Request) error {
	if g.Received < g.Deadline(r.Lease) {
		return nil
	}
	return fmt.Errorf("acquire %q: %w: the reply took longer than the lease of %v", r.Lock, ErrUnknown, time.Duration(g.Expiry-g.Now)*time.Microsecond)
}

// A GrantEvent announces that a tick was granted, or that a row was released.
type GrantEvent struct {
	Lock  string
	Tick  time.Time // zero if a row was released; then Owner and Until are zero, too
	Owner string
	// Until is the end of the lease by Redis's clock, unless the holder renews it. It is in the past after the lease was given back or handed over.
	Until time.Time
}

// A GrantedRow is a row whose grant is to be published.
type GrantedRow struct {
	Row   *HeldRow
	Until int64 // by Redis's clock, in microseconds
}
