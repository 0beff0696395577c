package locking

import (
	"context"
	"fmt"
	"sync"
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

// ErrStale means that the resource has already seen a greater token, so the caller no longer holds the lease. It is wrapped by a [StaleError].
var ErrStale = engine.ErrStale

// ErrAhead means that a token is ahead of the server's clock by more than a minute. No lease has such a token. A fence that recorded such a token
// would refuse every real token until the server's clock passes it.
var ErrAhead = engine.ErrAhead

// A StaleError has the refused token and the greater token that the resource has seen.
type StaleError = engine.StaleError

// A Fence keeps in Redis the greatest token that was presented for a resource, and refuses smaller tokens. It is for resources that can't compare
// tokens themselves.
//
// A resource that compares tokens itself is safer, because it checks and writes in one step. With a Fence, a caller that is paused between
// [Fence.Pass] and the write may still write late. A [Gate] makes check and write one step for a resource in this process. docs/fencing.md shows the
// same for databases and files. Such a resource also keeps its token if Redis loses its data (FLUSHALL, a restart without persistence, a failover
// that lost writes). A Fence then keeps only tokens that a client has seen and presents again. If the resource is in the same Redis, write the value
// and the token in one script.
//
// A fence is one key, which takes about 110 bytes with a short name and stays until it is deleted: see [ForgetAfter].
type Fence engine.Fence

// A FenceOption changes what a [Fence] keeps.
type FenceOption = engine.FenceOption

// ForgetAfter lets Redis forget a fence that no caller has used for idle. It bounds the memory of fences for many resources. The time idle must be
// longer than any pause of a holder, because a forgotten fence accepts any token. If calls differ in idle, the longest counts. A fence that was used
// once without ForgetAfter is never forgotten.
func ForgetAfter(idle time.Duration) FenceOption { return engine.ForgetAfter(idle) }

// Fence returns the fence of a resource. It does not call Redis. The fence is independent of a lock with the same name. Protect a resource by one
// lock only, because the tokens of different locks cannot be compared.
func (c *Client) Fence(resource string, options ...FenceOption) *Fence {
	return (*Fence)(c.Engine().Fence(resource, options...))
}

// Pass records the token and returns nil if no greater one was recorded before; the same token may pass any number of times. Otherwise the error is a
// [StaleError], which wraps [ErrStale].
//
// Pass refuses a token that is more than a minute ahead of the server's clock with [ErrAhead], and does not record it.
//
// After any error the caller must not write to the resource. The error is [ErrUnknown] if the server, or its replicas ([Config.AckedReplicas]), did
// not answer: the token may or may not have been recorded. Calling Pass again with the same token is safe.
func (f *Fence) Pass(ctx context.Context, token Token) error {
	return (*engine.Fence)(f).Pass(ctx, token)
}

// A Gate is a fence in memory, for a resource that exists only in this process. The zero value accepts every token. A Gate cannot compare tokens with
// the server's clock, so a made-up token that is too great closes the Gate for good. A Gate is safe for concurrent use and must not be copied.
type Gate struct {
	mu     sync.Mutex
	newest Token
}

// Do calls act and returns its error, unless the gate has seen a greater token: then it returns a [StaleError]. Calls of Do are serialized, so check
// and act are one step: no newer holder can act between them.
func (g *Gate) Do(token Token, act func() error) error {
	if err := lease.CheckToken(token); err != nil {
		return fmt.Errorf("gate: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if token < g.newest {
		return fmt.Errorf("gate: %w", &StaleError{Token: token, Newest: g.newest})
	}
	g.newest = token
	return act()
}

// A Tx is one attempt of an update. Its field Read is for reading, on the connection that watches the keys. A write through Read takes effect at
// once, and again in the next attempt. Its field Write queues writes. The server executes them in one transaction if no watched key has changed since
// the attempt began. Their results are available after the update.
type Tx = engine.Tx

// Update changes keys without a lock (optimistic locking). The function change reads the keys and queues writes. The writes take effect in one step
// if no other client has changed any of the keys in between. Otherwise, and while the server can't be reached, Update retries from the start, with
// growing pauses, until ctx ends. It is for short changes of data in the same Redis that rarely conflict. Because change may be called many times,
// use a lock if change is expensive or has effects elsewhere.
//
// The keys are written as they are, without [Config.Prefix]. On a Redis Cluster these keys, and all other keys that change uses, must have the same
// hash tag.
//
// If change returns an error, Update writes nothing and returns this error unchanged. [ErrUnknown] means that the connection was lost during the
// write: either all writes were done or none. Update does not retry then, because the writes could be done twice. After any other error nothing was
// written, with one exception: if Redis refuses a queued command only when it runs (WRONGTYPE), Redis still executes the other commands.
func (c *Client) Update(ctx context.Context, keys []string, change func(tx *Tx) error) error {
	return c.Engine().Update(ctx, keys, change)
}
