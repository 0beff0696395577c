package lease

import (
	"context"
	"time"
)

// A Span is the time for which work may go on: the time of one lease, or of several leases that the work needs. Its methods are documented at
// locking.Lease and locking.LeaseSet.
type Span interface {
	Context() context.Context
	Endangered() <-chan struct{}
	Remaining() time.Duration
	Length() time.Duration
	Deadline() time.Duration
	OnExtend(f func(deadline time.Duration)) (stop func())
}

// A Run is a held lease with the methods that a scheduler needs: the run of a tick has attempts, can be asked to stop, and ends with an outcome. The
// methods without a comment are those of locking.Lease.
type Run interface {
	Span
	ID() string
	Slot() int
	Token() Token
	Confirmed() <-chan struct{}
	Release(ctx context.Context) error

	// Attempt returns the number of the current attempt. It is 1 at first, or more for an adopted run, and NextAttempt raises it.
	Attempt() int
	// Tick returns the tick that was granted with the lease; zero without one.
	Tick() time.Time
	// NextAttempt records another attempt of the same work under the same lease, and returns its number once Redis has acknowledged it. The attempt must
	// not begin before NextAttempt returns. If the holder dies, its orphan then has at least this attempt, so no other client gets the same number. While
	// Redis does not answer, NextAttempt repeats the request with the same number, until ctx or the lease ends. The error wraps the cause of that end,
	// and [ErrUnknown] if Redis may have recorded the attempt. A later call asks for the same number again.
	NextAttempt(ctx context.Context) (attempt int, err error)
	// ReleaseWith is Release for a run that followers depend on. well is true if the run succeeded. The lock keeps this outcome until all followers have
	// used it: see [InspectRequest]. The outcome of a tick is the outcome of its last lease, or the worst outcome if the tick has several grants.
	ReleaseWith(ctx context.Context, well bool) error
	// MarkSucceeded records in the lock that the work has succeeded. The holder calls it after the work and before the release. If the holder dies before
	// the release, its orphan has [Row.EndedWell] set. With followed, MarkSucceeded also records the outcome of the tick for its followers, like
	// ReleaseWith. After an error, Redis may or may not have recorded the success.
	MarkSucceeded(ctx context.Context, followed bool) error
	// Undo releases a lease whose work never began, and reopens its tick. Like Release, it gives up one hold of a reentrant lock.
	Undo(ctx context.Context) error
	// HandOver ends the lease of a run that another client is to recover. Like Release, it must be called after the work has stopped. It frees the row
	// and makes the run an orphan, which another client can adopt ([Request.Adopt]). Clients that called [Client.Subscribe] are notified. A run whose
	// lease was lost is an orphan already. A lease without a trigger leaves no orphan.
	//
	// attempt is the last attempt that has begun, from the granted one to Attempt. The client that adopts the run gets the next number. Unless the lease
	// was lost before, this reuses a number that was acknowledged but whose attempt never began.
	HandOver(ctx context.Context, attempt int) error
	// Stopping returns a channel that is closed when the holder is asked to stop: see [Client.Stop]. The holder decides when it stops. The lease is
	// renewed until the holder releases it.
	Stopping() <-chan struct{}
	// StopReason returns the reason why the holder is asked to stop; "" if it is not.
	StopReason() string
	// GrantedRow returns the row to publish. Its Until shows whether the lease is held, was given back, or was handed over to a recovery.
	GrantedRow() GrantedRow
	// Join returns the time for which both this lease and another lease are held. A lease can be joined once.
	Join(other Run) Span
}
