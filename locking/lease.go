package locking

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/engine"
)

// A Token is a fencing token: of two grants of one lock the later has the greater one. It is the server's clock in microseconds when the lease was
// granted, or one more than the newest token of the lock if that is greater. It is below 2^53.
type Token = lease.Token

// MaxLease is the maximum length of a lease without renewal.
const MaxLease = lease.MaxLease

var (
	// ErrUnknown means that the server did not answer in time: it may or may not have carried out the request.
	ErrUnknown = lease.ErrUnknown
	// ErrRefused is returned with ErrUnknown if asking again would change nothing: the server refuses the credentials, does not permit its user a
	// command that is needed, or has something other than a lock under the key.
	ErrRefused = lease.ErrRefused
	// ErrLost is the cause with which a lease's context ends if the lease was not renewed in time, or another lease has its row.
	ErrLost = lease.ErrLost
	// ErrReleased is the cause with which a lease's context ends when the lease was released.
	ErrReleased = lease.ErrReleased
	// ErrLimit means that the lock is in use with another number of slots.
	ErrLimit = lease.ErrLimit
	// ErrClosed is returned by a client that was closed.
	ErrClosed = lease.ErrClosed
	// ErrQuorum is returned by methods that need one server if [Config.Quorum] has several.
	ErrQuorum = lease.ErrQuorum
	// ErrCorrupt means that a key of the lock, or a reply, holds data that no client has written. The error names the key and the field. It concerns
	// only that lock. As long as the key is damaged, the error comes with [ErrUnknown] and [ErrRefused]: repair or delete the key.
	ErrCorrupt = lease.ErrCorrupt
)

// A Lease is a hold on one row of a lock. The client's keeper renews it until it is released or lost. It is safe for concurrent use.
type Lease engine.Lease

func (l *Lease) toEngine() *engine.Lease { return (*engine.Lease)(l) }

// ID returns the lease id.
func (l *Lease) ID() string { return l.toEngine().ID() }

// Slot returns the row that is held, from 0.
func (l *Lease) Slot() int { return l.toEngine().Slot() }

// Token returns the fencing token of this grant.
func (l *Lease) Token() Token { return l.toEngine().Token() }

// Length returns the length of the lease without renewal.
func (l *Lease) Length() time.Duration { return l.toEngine().Length() }

// Context returns a context that ends before the lease does, or when it is released. context.Cause returns the reason: [ErrLost], [ErrReleased] or
// [ErrClosed].
func (l *Lease) Context() context.Context { return l.toEngine().Context() }

// Endangered returns a channel that is closed when a third of the lease is left because renewals have failed: time to save work. A renewal may still
// come through, so the context, not this channel, shows whether the lease is held.
func (l *Lease) Endangered() <-chan struct{} { return l.toEngine().Endangered() }

// Confirmed returns a channel that is closed when the lease has its whole length. A lease that was waited for begins with at most one second, and a
// lease whose grant arrived late with what is left, until the keeper has renewed it. A caller that needs longer to stop its work waits for this
// channel first, or for the end of [Lease.Context].
func (l *Lease) Confirmed() <-chan struct{} { return l.toEngine().Confirmed() }

// Remaining returns how long the holder may rely on the lease unless it is renewed; negative once it has ended.
func (l *Lease) Remaining() time.Duration { return l.toEngine().Remaining() }

// Deadline returns the instant until which the holder may rely on the lease unless it is renewed, by [Config.Clock]. The default clock is
// CLOCK_BOOTTIME on Linux, the same for all processes of the machine.
func (l *Lease) Deadline() time.Duration { return l.toEngine().Deadline() }

// OnExtend calls f with the new deadline after each renewal, in order, until stop is called. A call that is under way then may end later. All
// renewals wait for f, so it must return at once. Earlier renewals are in [Lease.Deadline].
func (l *Lease) OnExtend(f func(deadline time.Duration)) (stop func()) {
	return l.toEngine().OnExtend(f)
}

// Release ends the lease: first its context, which must be the end of the work, then its row. It does so even if ctx has ended, in at most twice
// [Config.Timeout], one call after the other. [ErrLost] means that the server did not have the lease any more. [ErrUnknown] means that the server did
// not answer: the release is then tried again in the background, until the row has run out by itself or the client closes. A second Release is not an
// error. If a lease was entered more than once, see [Mutex.LockReentrant], each call gives up one hold, and only the last one ends the lease.
func (l *Lease) Release(ctx context.Context) error { return l.toEngine().Release(ctx) }
