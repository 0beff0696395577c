package locking

import (
	"context"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// Tx is one try of an update. Its field Read is for reading, on the connection that watches the keys: a write through it takes effect at once, and again with
// the next try. Its field Write queues what the server then does together, if no key that is watched has changed since the try began; the results are there after
// the update.
type Tx = engine.Tx

// Update changes keys without a lock (optimistic locking): change reads them and queues the writes, which take
// effect in one step if no other client has changed any of the keys meanwhile. Else, and while the server can't
// be reached, it tries again from the start, with pauses that grow, until ctx ends. It is for short changes of
// data in the same Redis, where a conflict is rare; use a lock where a try is expensive, or has effects
// elsewhere: change may be called many times.
//
// The keys are written as they are, without [Config.Prefix]. With a Cluster they must have one hash tag, and so must all that change touches.
//
// An error of change ends the update and is returned as it is; nothing is written then, nor where nothing was
// queued. [ErrUnknown] means that the connection was lost when the write was under way: it may have been done,
// all of it or nothing, and it is not tried again, since it could be done twice. After any other error nothing
// was done, with one exception that is Redis' own: where a command of several is refused only when it runs
// (WRONGTYPE), the others are done all the same.
func (c *Client) Update(ctx context.Context, keys []string, change func(tx *Tx) error) error {
	return c.Engine().Update(ctx, keys, change)
}
