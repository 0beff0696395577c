package locking

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
)

// ErrStale means that a resource has seen a greater token: whoever brought this one holds the lease no more. The error that wraps
// it is a [StaleError].
var ErrStale = errors.New("stale fencing token")

// ErrAhead means that a token is ahead of the server's clock by more than a minute: no lease has it, and recorded it would keep all others out until the clock has
// reached it.
var ErrAhead = errors.New("fencing token ahead of the server's clock")

// StaleError tells which token was refused, and why.
type StaleError struct {
	Resource string // "" for a [Gate]
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

// maxToken is the greatest number below 2^53, up to which Lua, JSON and shells count exactly.
const maxToken Token = 1<<53 - 1

// check refuses what no lease can have.
func (t Token) check() error {
	if t < 1 || t > maxToken {
		return fmt.Errorf("token %d: it must be from 1 to %d", t, maxToken)
	}
	return nil
}

// Fence remembers in Redis the greatest token that was brought to a resource, and refuses smaller ones. It is for resources
// that can't do so themselves.
//
// A resource that can is safer, because there the check and the write are one step: whoever stands still between
// [Fence.Pass] and the write may still write late. A [Gate] does that for a resource in this process; docs/fencing.md has databases and
// files. It also outlives Redis: if that forgets (FLUSHALL, restart without memory, a failover that lost writes), so do its fences,
// except for what a client that asks again has seen itself. Who has only Redis as a resource writes value and token there
// in one script.
//
// A fence is one key, which takes about 110 bytes with a short name and stays until somebody deletes it: see [ForgetAfter].
type Fence struct {
	client   *Client
	resource string
	idle     time.Duration
}

// FenceOption changes what a [Fence] keeps.
type FenceOption func(*Fence)

// ForgetAfter lets Redis forget a fence when nobody has asked for so long. It bounds the memory that the fences of many
// resources take: to those of that time. It must be longer than any holder may stand still, since the first token after it passes, whichever it
// is. The longest that was asked for counts; a fence that was once asked for without it stays.
func ForgetAfter(idle time.Duration) FenceOption { return func(f *Fence) { f.idle = idle } }

// Fence is the fence of a resource. It makes no call. Locks of the same name are another thing: a resource may be written
// under several locks only if their tokens can be compared, so it should be one.
func (c *Client) Fence(resource string, options ...FenceOption) *Fence {
	f := &Fence{client: c, resource: resource}
	for _, o := range options {
		o(f)
	}
	return f
}

// Pass records the token and returns nil if none greater was recorded before; the same one may pass as often as its holder
// likes. Else the error is a [StaleError], which is [ErrStale].
//
// A token that is ahead of the server's clock by more than a minute is refused with [ErrAhead], and not recorded.
//
// With any other error the resource must not be touched. It is [ErrUnknown] if the server did not answer, or its replicas did not
// ([Config.AckedReplicas]): the token may have been recorded or not. Asking again is safe.
func (f *Fence) Pass(ctx context.Context, token Token) error {
	if err := f.pass(ctx, token); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

func (f *Fence) pass(ctx context.Context, token Token) error {
	if err := f.client.single("pass the fence of " + f.resource); err != nil {
		return err
	}
	c := f.client
	if err := errors.Join(checkName(f.resource), token.check(), c.ready()); err != nil {
		return err
	}
	if f.idle < 0 {
		return fmt.Errorf("resource %q: ForgetAfter must not be negative", f.resource)
	}
	r := c.exec(ctx, []call{f.call(token)})[0]
	switch {
	case r.err != nil:
		return fmt.Errorf("resource %q: %w", f.resource, r.err)
	case r.verdict == "stale": // also if a failover may forget it: the greater token was granted
		return &StaleError{f.resource, token, Token(r.floor)}
	case r.verdict == "ahead":
		return fmt.Errorf("resource %q: %w by %v: %d", f.resource, ErrAhead, time.Duration(min(int64(token)-r.now, math.MaxInt64/1000))*time.Microsecond, token)
	case r.verdict != "passed":
		return fmt.Errorf("resource %q: %w: the server's word is %q", f.resource, ErrUnknown, r.verdict)
	case !r.acked:
		return fmt.Errorf("resource %q: %w", f.resource, c.unacked())
	}
	return nil
}

// call has a name that no lock can have, by which the client also witnesses the fence. It names one key only, so that a slot
// of a Cluster that moves is never in between two places for it.
func (f *Fence) call(token Token) call {
	c := f.client
	name := strings.TrimPrefix(c.key(f.resource), c.cfg.Prefix) + ":fence"
	return c.callOn(c.keys(name, "")[:1], f.idle, c.scripts.fence, name, "", int64(token))
}

// Gate is a fence in memory, for a resource that lives in this process and is gone with it. The zero value lets every token
// in. It knows no server's clock: a token that no lease ever had closes it for as long as it lives. It is safe for concurrent use and must not be copied.
type Gate struct {
	mu     sync.Mutex
	newest Token
}

// Do calls act if no greater token was there before, and returns its error; else a [StaleError]. Nobody else is let in before act has returned:
// check and act are one step, so a holder that stands still in between comes too late, or first.
func (g *Gate) Do(token Token, act func() error) error {
	if err := token.check(); err != nil {
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
