package locking

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/engine"
)

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
