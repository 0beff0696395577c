package locking

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/engine"
)

// Token is a fencing token: of two grants of one lock the later has the greater. It is the server's clock in microseconds when the lease was
// granted, or one more than the newest token of the lock if that is greater, and below 2^53.
type Token = lease.Token

// MaxLease is the longest that a lease may last without renewal.
const MaxLease = lease.MaxLease

var (
	// ErrUnknown means that the server did not answer in time: it may or may not have carried out the
	// request.
	ErrUnknown = lease.ErrUnknown
	// ErrRefused comes with ErrUnknown where asking again would change nothing: the server refuses the credentials,
	// does not permit its user a command that is needed, or has something else than a lock under the key.
	ErrRefused = lease.ErrRefused
	// ErrLost ends a lease's context when the lease was not renewed in time, or another holds its row.
	ErrLost = lease.ErrLost
	// ErrReleased ends a lease's context when it was released.
	ErrReleased = lease.ErrReleased
	// ErrLimit means that the lock is in use with another number of slots.
	ErrLimit = lease.ErrLimit
	// ErrClosed is returned by a client that was closed.
	ErrClosed = lease.ErrClosed
	// ErrQuorum is returned by methods that need one server, where [Config.Quorum] names several.
	ErrQuorum = lease.ErrQuorum
	// ErrCorrupt means that a key of the lock, or a reply, holds what no client has written. The error names the key and the field, and it
	// concerns that lock alone. As long as the key is damaged it comes with [ErrUnknown] and [ErrRefused]: repair or delete the key.
	ErrCorrupt = lease.ErrCorrupt
)

// Lease is a hold on one row of a lock. The client's keeper renews it until it is released or lost. It is safe for concurrent use.
type Lease engine.Lease

func (l *Lease) engine() *engine.Lease { return (*engine.Lease)(l) }

// ID is the lease id.
func (l *Lease) ID() string { return l.engine().ID() }

// Slot is the row that is held, from 0.
func (l *Lease) Slot() int { return l.engine().Slot() }

// Token is the fencing token of this grant.
func (l *Lease) Token() Token { return l.engine().Token() }

// Length is how long the lease lasts without renewal.
func (l *Lease) Length() time.Duration { return l.engine().Length() }

// Context ends before the lease does, or when it is released; context.Cause returns the reason: [ErrLost],
// [ErrReleased], [ErrClosed].
func (l *Lease) Context() context.Context { return l.engine().Context() }

// Endangered is closed when a third of the lease is left because renewals have failed: time to save work.
// A renewal may still come through, so the context, not this channel, shows whether the lease is held.
func (l *Lease) Endangered() <-chan struct{} { return l.engine().Endangered() }

// Confirmed is closed when the lease has its whole length. One that was waited for begins with a second at most,
// and one whose grant arrived late with the rest of it, until the keeper has renewed it. A caller that needs
// longer to stop its work waits for this channel first, or for the end of [Lease.Context].
func (l *Lease) Confirmed() <-chan struct{} { return l.engine().Confirmed() }

// Remaining is how long the holder may rely on the lease if no renewal comes through; negative once it has ended.
func (l *Lease) Remaining() time.Duration { return l.engine().Remaining() }

// Deadline is until when the holder may rely on the lease if no renewal comes through: an instant of [Config.Clock], which unless it
// is set is CLOCK_BOOTTIME on Linux, the same for all processes of the machine.
func (l *Lease) Deadline() time.Duration { return l.engine().Deadline() }

// OnExtend has f called with the new deadline after each renewal, in their order, until stop is called; a call that is under way
// then may end later. All renewals wait for f, so it must return at once. Renewals before OnExtend are in [Lease.Deadline].
func (l *Lease) OnExtend(f func(deadline time.Duration)) (stop func()) { return l.engine().OnExtend(f) }

// Release ends the lease: first its context, then, when that work must be over, its row. It is done even if ctx
// has ended, in at most twice [Config.Timeout], one call after the other. [ErrLost] means that the server did
// not have it any more; [ErrUnknown] that the server did not answer: it is tried again in the background then,
// until the row has run out by itself or the client closes. To release it again is no error. Of a lease that was
// entered more than once, see [Mutex.LockReentrant], it gives one hold up, and all that only with the last.
func (l *Lease) Release(ctx context.Context) error { return l.engine().Release(ctx) }
