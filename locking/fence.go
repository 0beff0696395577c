package locking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/redis"
)

// ErrStale means that the resource has already seen a greater token, so the caller no longer holds the lease. It is wrapped by a [StaleError].
var ErrStale = lease.ErrStale

// ErrAhead means that a token is ahead of the server's clock by more than a minute. No lease has such a token. If a fence recorded one, it would
// refuse every real token until the server's clock has passed the recorded token.
var ErrAhead = lease.ErrAhead

// A StaleError has the refused token and the greater token that the resource has seen.
type StaleError = lease.StaleError

// A Fence keeps in Redis the greatest token that was presented for a resource, and refuses smaller tokens. It is for resources that can't compare
// tokens themselves.
//
// A resource that compares tokens itself is safer, because it checks and writes in one step, and keeps its token if Redis loses its data (FLUSHALL, a
// restart without persistence, a failover that lost writes). docs/fencing.md shows this for databases and files. If the resource is in the same
// Redis, write the value and the token in one script. For a resource in this process, use a [Gate]. With a Fence, a caller that is paused between
// [Fence.Pass] and the write may still write late. After a loss of data, a Fence has only the tokens that clients have seen and present again.
//
// A fence is one key, which takes about 110 bytes with a short name and stays until it is deleted: see [ForgetAfter].
type Fence struct {
	client   *Client
	resource string
	idle     time.Duration
}

// A FenceOption changes what a [Fence] keeps.
type FenceOption func(*Fence)

// ForgetAfter lets Redis delete a fence that no caller has used for idle. It bounds the memory of fences for many resources. The time idle must be
// longer than any pause of a holder, because a deleted fence accepts any token. If calls differ in idle, the longest counts. A fence that was used
// once without ForgetAfter is never deleted.
func ForgetAfter(idle time.Duration) FenceOption { return func(f *Fence) { f.idle = idle } }

// Fence returns the fence of a resource. It does not call Redis. The fence is independent of a lock with the same name. Protect a resource by one
// lock only, because the tokens of different locks cannot be compared.
func (c *Client) Fence(resource string, options ...FenceOption) *Fence {
	f := &Fence{client: c, resource: resource}
	for _, o := range options {
		o(f)
	}
	return f
}

// Pass records the token and returns nil. If a greater token was recorded before, Pass returns a [StaleError], which wraps [ErrStale]. The same token
// may pass any number of times.
//
// Pass refuses a token that is more than a minute ahead of the server's clock with [ErrAhead], and does not record it.
//
// After any error the caller must not write to the resource. The error is [ErrUnknown] if the server, or its replicas ([Config.AckedReplicas]), did
// not answer: the token may or may not have been recorded. Calling Pass again with the same token is safe.
func (f *Fence) Pass(ctx context.Context, token Token) error {
	if err := f.passToken(ctx, token); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

func (f *Fence) passToken(ctx context.Context, token Token) error {
	s, err := lease.StoreAs[lease.Fencer](f.client.store, "pass the fence of "+f.resource)
	if err != nil {
		return err
	}
	if err := errors.Join(lease.CheckName(f.resource), lease.CheckToken(token), f.client.work.Ready()); err != nil {
		return err
	}
	if f.idle < 0 {
		return fmt.Errorf("resource %q: ForgetAfter must not be negative", f.resource)
	}
	return s.Pass(ctx, f.resource, f.idle, token)
}

// A Gate is a fence in memory, for a resource that exists only in this process. The zero value accepts every token. A Gate cannot compare tokens with
// the server's clock, so a made-up token that is too great closes the Gate for good. A Gate is safe for concurrent use and must not be copied.
type Gate struct {
	mu     sync.Mutex
	newest Token
}

// Do calls act and returns its error. If the gate has seen a greater token, Do returns a [StaleError] and does not call act. Calls of Do are
// serialized, so no newer holder can act between the check and act.
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

// A Tx is one attempt of an update. Read is for reading, on the connection that watches the keys. A write through Read takes effect at once, and again
// in the next attempt. Write queues writes. The server executes the queued writes in one transaction if no watched key has changed since the attempt
// began. The results of the writes are available after the update.
type Tx = redis.Tx

// An updater makes one try of an update. again is true if nothing was written and another try may succeed. Only a store on one master implements it.
type updater interface {
	Update(ctx context.Context, keys []string, change func(tx *Tx) error) (again bool, err error)
}

// The compiler checks the interface, because otherwise a changed signature would make [Client.Update] fail at run time.
var _ updater = (*redis.Store)(nil)

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
	s, err := lease.StoreAs[updater](c.store, "update")
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		return errors.New("update: there are no keys to watch")
	}
	for retry := backoff.New(2*time.Millisecond, 250*time.Millisecond); ; {
		if ctx.Err() != nil {
			return fmt.Errorf("update %s: %w", lease.QuoteNames(keys), context.Cause(ctx))
		}
		again, err := s.Update(ctx, keys, change)
		if !again {
			return err
		}
		if !retry.Wait(ctx) {
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}
