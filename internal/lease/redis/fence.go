package redis

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// Pass records a token for a resource, unless a greater one was recorded before.
func (c *Store) Pass(ctx context.Context, resource string, idle time.Duration, token lease.Token) error {
	r := c.execCalls(ctx, []call{c.fenceCall(resource, idle, token)})[0]
	switch {
	case r.err != nil:
		return fmt.Errorf("resource %q: %w", resource, r.err)
	case r.verdict == "stale": // this is true even if a failover loses the record: the greater token was granted
		return &lease.StaleError{Resource: resource, Token: token, Newest: lease.Token(r.floor)}
	case r.verdict == "ahead":
		return fmt.Errorf("resource %q: token %d not recorded: %w by %v", resource, token, lease.ErrAhead, time.Duration(min(int64(token)-r.now, math.MaxInt64/1000))*time.Microsecond)
	case r.verdict != "passed":
		return fmt.Errorf("resource %q: %w: unexpected reply %q", resource, lease.ErrUnknown, r.verdict)
	case !r.acked:
		return fmt.Errorf("resource %q: %w", resource, c.unackedError())
	}
	return nil
}

// fenceCall returns the call for a fence. The observed state of the fence is stored under a name that no lock can have. The call has only one key, so
// that it works while a Cluster migrates the slot.
func (c *Store) fenceCall(resource string, idle time.Duration, token lease.Token) call {
	name := strings.TrimPrefix(c.key(resource), c.cfg.Prefix) + ":fence"
	return c.callOn(c.keys(name, "")[:1], idle, c.scripts.Fence, name, "", script.FenceArgs{Token: token}.Encode()...)
}
