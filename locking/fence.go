package locking

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/engine"
)

// ErrStale means that a resource has seen a greater token: the caller with this one no longer holds the lease. The error that wraps it is a
// [StaleError].
var ErrStale = engine.ErrStale

// ErrAhead means that a token is ahead of the server's clock by more than a minute. No lease has such a token. A fence that recorded it would refuse
// every real token until the clock catches up.
var ErrAhead = engine.ErrAhead

// A StaleError has the token that was refused, and the greater one.
type StaleError = engine.StaleError

// A Fence keeps in Redis the greatest token that was brought to a resource, and refuses smaller ones. It is for resources that can't do so
// themselves.
//
// A resource that can is safer, because its check and its write are one step: a caller that stands still between [Fence.Pass] and the write may still
// write late. A [Gate] makes them one step for a resource in this process; docs/fencing.md shows it for databases and files. Such a resource also
// outlives Redis: if Redis forgets (FLUSHALL, a restart without its data, a failover that lost writes), so do its fences, except for tokens that a
// client has itself seen and brings again. If Redis is the only resource, write value and token in one script.
//
// A fence is one key, which takes about 110 bytes with a short name and stays until it is deleted: see [ForgetAfter].
type Fence engine.Fence

// A FenceOption changes what a [Fence] keeps.
type FenceOption = engine.FenceOption

// ForgetAfter lets Redis forget a fence that no caller has used for idle. It bounds the memory of fences for many resources. It must be longer than
// any holder may stand still, because after it any token passes first. The longest idle of all calls counts, and a fence that was used once without
// ForgetAfter stays.
func ForgetAfter(idle time.Duration) FenceOption { return engine.ForgetAfter(idle) }

// Fence returns the fence of a resource. It makes no call. A lock of the same name is another thing. A resource should be written under one lock
// only, because the tokens of different locks cannot be compared.
func (c *Client) Fence(resource string, options ...FenceOption) *Fence {
	return (*Fence)(c.Engine().Fence(resource, options...))
}

// Pass records the token and returns nil if no greater one was recorded before; the same token may pass any number of times. Otherwise the error is a
// [StaleError], which wraps [ErrStale].
//
// A token that is ahead of the server's clock by more than a minute is refused with [ErrAhead], and not recorded.
//
// After any other error the resource must not be written. The error is [ErrUnknown] if the server, or its replicas ([Config.AckedReplicas]), did not
// answer: the token may have been recorded or not. Asking again is safe.
func (f *Fence) Pass(ctx context.Context, token Token) error {
	return (*engine.Fence)(f).Pass(ctx, token)
}

// A Gate is a fence in memory, for a resource that lives in this process and is gone with it. The zero value lets every token in. It does not know
// the server's clock: a token that no lease ever had closes it for ever. It is safe for concurrent use and must not be copied.
type Gate struct {
	mu     sync.Mutex
	newest Token
}

// Do calls act if no greater token was there before, and returns its error. Otherwise it returns a [StaleError]. No other call begins before act has
// returned: check and act are one step, so a holder that stands still in between comes too late, or first.
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
