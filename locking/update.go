package locking

import (
	"context"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

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
