package locking

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/engine"
)

// A Token is a fencing token: of two grants of one lock, the later has the greater token. A token is the server's time of the grant in microseconds,
// or the newest token of the lock plus one if that is greater. It is below 2^53.
type Token = lease.Token

// MaxLease is the maximum length of a lease without renewal.
const MaxLease = lease.MaxLease

var (
	// ErrUnknown means that Redis did not answer in time, and may or may not have executed the request.
	ErrUnknown = lease.ErrUnknown
	// ErrRefused is returned with ErrUnknown if a retry would fail, too: Redis refuses the credentials, the user lacks a right, or the key holds
	// something other than a lock.
	ErrRefused = lease.ErrRefused
	// ErrLost is the cause with which a lease's context ends if the lease was not renewed in time, or its slot was granted to another lease.
	ErrLost = lease.ErrLost
	// ErrReleased is the cause with which a lease's context ends when the lease is released.
	ErrReleased = lease.ErrReleased
	// ErrLimit means that the lock is in use with a different number of slots.
	ErrLimit = lease.ErrLimit
	// ErrClosed is returned by a closed client.
	ErrClosed = lease.ErrClosed
	// ErrQuorum is returned by methods that do not work on a quorum, if [Config.Quorum] is set.
	ErrQuorum = lease.ErrQuorum
	// ErrCorrupt means that a key of the lock, or a reply, holds data that no client has written. The error names the key and the field. Other locks are
	// not affected. ErrCorrupt is returned with [ErrUnknown] and [ErrRefused] until a person repairs or deletes the key.
	ErrCorrupt = lease.ErrCorrupt
)

// A Lease is a hold on one slot of a lock. The client renews it until it is released or lost. It is safe for concurrent use.
type Lease engine.Lease

func (l *Lease) toEngine() *engine.Lease { return (*engine.Lease)(l) }

// ID returns the lease id.
func (l *Lease) ID() string { return l.toEngine().ID() }

// Slot returns the number of the held slot, from 0.
func (l *Lease) Slot() int { return l.toEngine().Slot() }

// Token returns the fencing token of this grant.
func (l *Lease) Token() Token { return l.toEngine().Token() }

// Length returns the length of the lease without renewal.
func (l *Lease) Length() time.Duration { return l.toEngine().Length() }

// Context returns a context that ends before the lease does, or when it is released. context.Cause returns the reason: [ErrLost], [ErrReleased] or
// [ErrClosed].
func (l *Lease) Context() context.Context { return l.toEngine().Context() }

// Endangered returns a channel that is closed if renewals have failed and only a third of the lease is left, so that the holder can save its work. A
// later renewal may still succeed: only [Lease.Context] shows whether the lease is held.
func (l *Lease) Endangered() <-chan struct{} { return l.toEngine().Endangered() }

// Confirmed returns a channel that is closed when the lease has its whole length. Until its first renewal, a lease is shorter in two cases: after a
// wait it has at most one second, and after a late reply it has what was left of it. A caller that needs longer to stop its work waits for this
// channel, or for the end of [Lease.Context], before it begins.
func (l *Lease) Confirmed() <-chan struct{} { return l.toEngine().Confirmed() }

// Remaining returns the time for which the holder may rely on the lease without a renewal. It is negative after the end of the lease.
func (l *Lease) Remaining() time.Duration { return l.toEngine().Remaining() }

// Deadline returns the instant until which the holder may rely on the lease unless it is renewed, by [Config.Clock]. The default clock is
// CLOCK_BOOTTIME on Linux, the same for all processes of the machine.
func (l *Lease) Deadline() time.Duration { return l.toEngine().Deadline() }

// OnExtend calls f with the new deadline after each renewal, in order, until stop is called. A call of f that has begun may return after stop. All
// renewals of the client wait for f, so f must return at once. [Lease.Deadline] returns the deadline before the first call.
func (l *Lease) OnExtend(f func(deadline time.Duration)) (stop func()) {
	return l.toEngine().OnExtend(f)
}

// Release ends the lease's context and then frees its slot on the server. Call it after the work has ended. It works even if ctx has ended, and takes
// at most twice [Config.Timeout]. [ErrLost] means that the server did not have the lease any more. [ErrUnknown] means that the server did not answer:
// the client then retries in the background until the lease has expired or the client is closed. A second Release is not an error. If the lease has
// several holds (see [Mutex.LockReentrant]), each Release gives up one hold, and the last one ends the lease.
func (l *Lease) Release(ctx context.Context) error { return l.toEngine().Release(ctx) }
