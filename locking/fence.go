package locking

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/engine"
)

// ErrStale means that a resource has seen a greater token: the caller that brought this one no longer holds the
// lease. The error that wraps it is a [StaleError].
var ErrStale = engine.ErrStale

// ErrAhead means that a token is ahead of the server's clock by more than a minute. No lease has such a token; a fence that recorded it would refuse every
// real token until the clock catches up.
var ErrAhead = engine.ErrAhead

// StaleError names the token that was refused, and the greater one.
type StaleError = engine.StaleError

// Fence remembers in Redis the greatest token that was brought to a resource, and refuses smaller ones. It is for resources
// that can't do so themselves.
//
// A resource that can is safer, because there the check and the write are one step: a caller that stands still
// between [Fence.Pass] and the write may still write late. A [Gate] does that for a resource in this process;
// docs/fencing.md has databases and files. It also outlives Redis: if that forgets (FLUSHALL, restart without
// memory, a failover that lost writes), so do its fences, except for the tokens that a client which asks again
// has seen itself. A caller whose only resource is Redis writes value and token there in one script.
//
// A fence is one key, which takes about 110 bytes with a short name and stays until it is deleted: see [ForgetAfter].
type Fence engine.Fence

// FenceOption changes what a [Fence] keeps.
type FenceOption = engine.FenceOption

// ForgetAfter lets Redis forget a fence that no caller has asked for so long. It bounds the memory that the
// fences of many resources take: to those of that time. It must be longer than any holder may stand still, since
// the first token after it passes, whichever it is. The longest that was asked for counts; a fence that was once
// asked for without it stays.
func ForgetAfter(idle time.Duration) FenceOption { return engine.ForgetAfter(idle) }

// Fence is the fence of a resource. It makes no call. Locks of the same name are another thing: a resource may be written
// under several locks only if their tokens can be compared, so it should be one.
func (c *Client) Fence(resource string, options ...FenceOption) *Fence {
	return (*Fence)(c.Engine().Fence(resource, options...))
}

// Pass records the token and returns nil if none greater was recorded before; the same one may pass as often as its holder
// likes. Else the error is a [StaleError], which is [ErrStale].
//
// A token that is ahead of the server's clock by more than a minute is refused with [ErrAhead], and not recorded.
//
// With any other error the resource must not be touched. It is [ErrUnknown] if the server did not answer, or its replicas did not
// ([Config.AckedReplicas]): the token may have been recorded or not. Asking again is safe.
func (f *Fence) Pass(ctx context.Context, token Token) error {
	return (*engine.Fence)(f).Pass(ctx, token)
}

// Gate is a fence in memory, for a resource that lives in this process and is gone with it. The zero value lets every token
// in. It knows no server's clock: a token that no lease ever had closes it for as long as it lives. It is safe for concurrent use and must not be copied.
type Gate struct {
	mu     sync.Mutex
	newest Token
}

// Do calls act if no greater token was there before, and returns its error; else a [StaleError]. No other call
// begins before act has returned: check and act are one step, so a holder that stands still in between comes too
// late, or first.
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
