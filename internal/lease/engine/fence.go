package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// ErrStale means that a resource has seen a greater token: the caller that brought this one no longer holds the lease. See package locking.
var ErrStale = errors.New("stale fencing token")

// ErrAhead means that a token is ahead of the server's clock by more than a minute. See package locking.
var ErrAhead = errors.New("fencing token ahead of the server's clock")

// StaleError names the token that was refused, and the greater one.
type StaleError struct {
	Resource string // "" for a gate
	Token    Token  // the one refused
	Newest   Token  // the greatest so far
}

func (e *StaleError) Error() string {
	of := ""
	if e.Resource != "" {
		of = fmt.Sprintf(" of %q", e.Resource)
	}
	return fmt.Sprintf("%v%s: %d, after %d", ErrStale, of, e.Token, e.Newest)
}

// Unwrap is [ErrStale].
func (e *StaleError) Unwrap() error { return ErrStale }

// Fence remembers in Redis the greatest token that was brought to a resource, and refuses smaller ones. See package locking.
type Fence struct {
	client   *Client
	resource string
	idle     time.Duration
}

// FenceOption changes what a [Fence] keeps.
type FenceOption func(*Fence)

// ForgetAfter lets Redis forget a fence that no caller has asked for so long. See package locking.
func ForgetAfter(idle time.Duration) FenceOption { return func(f *Fence) { f.idle = idle } }

// Fence is the fence of a resource. See package locking.
func (c *Client) Fence(resource string, options ...FenceOption) *Fence {
	f := &Fence{client: c, resource: resource}
	for _, o := range options {
		o(f)
	}
	return f
}

// Pass records the token and returns nil if none greater was recorded before; the same one may pass as often as its holder likes. See package
// locking.
func (f *Fence) Pass(ctx context.Context, token Token) error {
	if err := f.pass(ctx, token); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

func (f *Fence) pass(ctx context.Context, token Token) error {
	s, err := only[fencer](f.client, "pass the fence of "+f.resource)
	if err != nil {
		return err
	}
	if err := errors.Join(lease.CheckName(f.resource), lease.CheckToken(token), f.client.ready()); err != nil {
		return err
	}
	if f.idle < 0 {
		return fmt.Errorf("resource %q: ForgetAfter must not be negative", f.resource)
	}
	return s.pass(ctx, f.resource, f.idle, token)
}

func (c *single) pass(ctx context.Context, resource string, idle time.Duration, token Token) error {
	r := c.exec(ctx, []call{c.fencing(resource, idle, token)})[0]
	switch {
	case r.err != nil:
		return fmt.Errorf("resource %q: %w", resource, r.err)
	case r.verdict == "stale": // also if a failover may forget it: the greater token was granted
		return &StaleError{resource, token, Token(r.floor)}
	case r.verdict == "ahead":
		return fmt.Errorf("resource %q: token %d not recorded: %w by %v", resource, token, ErrAhead, time.Duration(min(int64(token)-r.now, math.MaxInt64/1000))*time.Microsecond)
	case r.verdict != "passed":
		return fmt.Errorf("resource %q: %w: unexpected reply %q", resource, ErrUnknown, r.verdict)
	case !r.acked:
		return fmt.Errorf("resource %q: %w", resource, c.unacked())
	}
	return nil
}

// fencing has a name that no lock can have, by which the client also witnesses the fence. It names one key only, so that a slot
// of a Cluster that moves is never in between two places for it.
func (c *single) fencing(resource string, idle time.Duration, token Token) call {
	name := strings.TrimPrefix(c.key(resource), c.cfg.Prefix) + ":fence"
	return c.callOn(c.keys(name, "")[:1], idle, c.scripts.Fence, name, "", script.FenceArgs{Token: token}.Encode()...)
}
