package locking

import (
	"context"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// A Tx is one try of an update. Its field Read reads, on the connection that watches the keys: a write through it takes effect at once, and again
// with the next try. Its field Write queues writes, which the server executes together if no watched key has changed since the try began. Their
// results are available after the update.
type Tx = engine.Tx

// Update changes keys without a lock (optimistic locking). change reads them and queues the writes, which take effect in one step if no other client
// has changed any of the keys meanwhile. Otherwise, and while the server can't be reached, Update tries again from the start, with growing pauses,
// until ctx ends. It is for short changes of data in the same Redis that rarely conflict. Use a lock if a try is expensive or has effects elsewhere,
// because change may be called many times.
//
// The keys are written as they are, without [Config.Prefix]. On a Cluster they must have the same hash tag, as must all keys that change touches.
//
// An error of change ends the update and is returned as it is; nothing is written then. Nothing is written either if nothing was queued. [ErrUnknown]
// means that the connection was lost during the write: all of it may have been done or nothing, and it is not tried again, because it could be done
// twice. After any other error nothing was done, with one exception that is Redis' own: if one command of several is refused only when it runs
// (WRONGTYPE), the others are done all the same.
func (c *Client) Update(ctx context.Context, keys []string, change func(tx *Tx) error) error {
	return c.Engine().Update(ctx, keys, change)
}
