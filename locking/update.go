package locking

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Tx is one try of an update.
type Tx struct {
	// Read is for reading, on the connection that watches the keys. What is written through it is written at once, and again by the next try.
	Read redis.Cmdable
	// Write queues what the server then does together, if no key that is watched has changed since the try began. The results are there after
	// the update.
	Write redis.Pipeliner
}

// Update changes keys without a lock (optimistic locking): change reads them and queues what is to be written, which is done in one step if nobody
// has changed any of the keys meanwhile. Else, and while the server can't be reached, it tries again from the start, with pauses that
// grow, until ctx ends. It is for short changes of data in the same Redis, where a conflict is rare; use a lock where a try is
// expensive, or has effects elsewhere: change may be called many times.
//
// The keys are written as they are, without [Config.Prefix]. With a Cluster they must have one hash tag, and so must all that change touches.
//
// An error of change ends the update and is returned as it is; nothing is written then, nor where nothing was queued. [ErrUnknown] tells that the
// connection was lost when the write was under way: it may have been done, all of it or nothing, and it is not tried again, since it could be
// done twice. After any other error nothing was done, with one exception that is Redis' own: where a command of several is refused
// only when it runs (WRONGTYPE), the others are done all the same.
func (c *Client) Update(ctx context.Context, keys []string, change func(tx *Tx) error) error {
	if err := c.single("update"); err != nil {
		return err
	}
	if len(keys) == 0 {
		return errors.New("update: there are no keys to watch")
	}
	const shortest, longest = time.Millisecond, 250 * time.Millisecond
	for pause := shortest; ; pause = min(2*pause, longest) {
		if ctx.Err() != nil {
			return fmt.Errorf("update %s: %w", quoted(keys), context.Cause(ctx))
		}
		again, err := c.update(ctx, keys, change)
		if !again {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// update tries once; again tells that nothing was done, and that it may be next time.
func (c *Client) update(ctx context.Context, keys []string, change func(tx *Tx) error) (again bool, err error) {
	if err = c.ready(); err != nil {
		return false, fmt.Errorf("update %s: %w", quoted(keys), err)
	}
	s, err := c.servers.holder(ctx, keys[0]) // the Cluster's client itself would try again whatever was under way
	if err != nil {
		return true, fmt.Errorf("update %s: %w", quoted(keys), err)
	}
	node, ok := s.redis.(redis.UniversalClient)
	if !ok {
		return false, fmt.Errorf("update %s: %T has no transactions", quoted(keys), s.redis)
	}
	t := transaction{Client: c, keys: keys}
	// Its context only bounds how a connection is left, and has no end, so that none is left that still watches.
	err = node.Watch(context.WithoutCancel(ctx), func(tx *redis.Tx) error {
		again, err = t.try(ctx, tx, change)
		return err
	})
	if again {
		c.servers.suspect(ctx)
	}
	return again, err
}

// transaction is an update's try.
type transaction struct {
	*Client
	keys []string
}

func (t transaction) try(ctx context.Context, tx *redis.Tx, change func(tx *Tx) error) (again bool, err error) {
	if err := t.watch(ctx, tx); err != nil {
		return passes(err), fmt.Errorf("update %s: watch the keys: %w", quoted(t.keys), err)
	}
	try := &Tx{Read: tx, Write: tx.TxPipeline()}
	if err := change(try); err != nil {
		t.unwatch(ctx, tx)
		return false, err
	}
	switch {
	case try.Write.Len() == 0:
		t.unwatch(ctx, tx)
		return false, nil
	case ctx.Err() != nil:
		t.unwatch(ctx, tx)
		return false, fmt.Errorf("update %s: %w", quoted(t.keys), context.Cause(ctx))
	}
	return t.write(ctx, try.Write)
}

func (t transaction) watch(ctx context.Context, tx *redis.Tx) (err error) {
	defer shield(&err)
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	return tx.Watch(ctx, t.keys...).Err()
}

// unwatch leaves the connection as others expect it. If that fails, the connection is broken and will not be used again.
func (t transaction) unwatch(ctx context.Context, tx *redis.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.cfg.Timeout)
	defer cancel()
	_ = process(ctx, tx, redis.NewStatusCmd(ctx, "unwatch"))
}

func (t transaction) write(ctx context.Context, pipe redis.Pipeliner) (again bool, err error) {
	defer shield(&err)
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	cmds, err := pipe.Exec(ctx)
	if errors.Is(err, redis.Nil) { // the answer of a command that reads: what counts is whether another has failed
		err = nil
		if i := slices.IndexFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil && !errors.Is(cmd.Err(), redis.Nil) }); i >= 0 {
			err = cmds[i].Err()
		}
	}
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, redis.TxFailedErr):
		return true, fmt.Errorf("update %s: the keys change all the time", quoted(t.keys))
	case redis.HasErrorPrefix(err, "EXECABORT"): // a command was refused before any was done
		refused := slices.IndexFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil && !redis.HasErrorPrefix(cmd.Err(), "EXECABORT") })
		if refused >= 0 {
			err = cmds[refused].Err()
		}
		return refused >= 0 && passes(err), fmt.Errorf("update %s: %w", quoted(t.keys), err)
	case isReply(err):
		return false, fmt.Errorf("update %s: %w", quoted(t.keys), err)
	}
	return false, fmt.Errorf("update %s: %w", quoted(t.keys), unknown(err))
}

// passes tells whether what went wrong before anything was done may be right next time: the network, or a server that is not in place yet.
func passes(err error) bool {
	if !isReply(err) {
		return !errors.Is(err, redis.ErrClosed)
	}
	return slices.ContainsFunc([]string{"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "NOREPLICAS"},
		func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}
