package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// A Tx is one try of [Store.Update].
type Tx struct {
	// Read executes commands on the connection that watches the keys. A write through Read takes effect at once, and again in the next try.
	Read redis.Cmdable
	// Write queues commands. Redis executes them in one step if no watched key has changed since the try began. Their results are available after the
	// update.
	Write redis.Pipeliner
}

// Update calls change and executes the commands that change has queued. again is true if nothing was written and another try may succeed.
func (c *Store) Update(ctx context.Context, keys []string, change func(tx *Tx) error) (again bool, err error) {
	if err = c.cfg.Work.Ready(); err != nil {
		return false, fmt.Errorf("update %s: %w", lease.QuoteNames(keys), err)
	}
	s, err := c.servers.holderOf(ctx, keys[0]) // a Cluster's own client would repeat the transaction even if its outcome is unknown
	if err != nil {
		return true, fmt.Errorf("update %s: %w", lease.QuoteNames(keys), err)
	}
	node, ok := s.redis.(redis.UniversalClient)
	if !ok {
		return false, fmt.Errorf("update %s: %T has no transactions", lease.QuoteNames(keys), s.redis)
	}
	t := transaction{store: c, keys: keys}
	// go-redis uses this context to unwatch the keys when it returns the connection to the pool. The context can't be canceled, because otherwise a
	// connection in the pool could still watch keys.
	err = node.Watch(context.WithoutCancel(ctx), func(tx *redis.Tx) error {
		again, err = t.tryOnce(ctx, tx, change)
		return err
	})
	if again {
		c.servers.reloadState(ctx)
	}
	return again, err
}

type transaction struct {
	store *Store
	keys  []string
}

func (t transaction) tryOnce(ctx context.Context, tx *redis.Tx, change func(tx *Tx) error) (again bool, err error) {
	if err := t.watchKeys(ctx, tx); err != nil {
		return mayPass(err), fmt.Errorf("update %s: watch the keys: %w", lease.QuoteNames(t.keys), err)
	}
	try := &Tx{Read: tx, Write: tx.TxPipeline()}
	if err := change(try); err != nil {
		t.unwatchKeys(ctx, tx)
		return false, err
	}
	switch {
	case try.Write.Len() == 0:
		t.unwatchKeys(ctx, tx)
		return false, nil
	case ctx.Err() != nil:
		t.unwatchKeys(ctx, tx)
		return false, fmt.Errorf("update %s: %w", lease.QuoteNames(t.keys), context.Cause(ctx))
	}
	return t.writeQueued(ctx, try.Write)
}

func (t transaction) watchKeys(ctx context.Context, tx *redis.Tx) (err error) {
	defer Shield(&err)
	ctx, cancel := context.WithTimeout(ctx, t.store.cfg.Timeout)
	defer cancel()
	return tx.Watch(ctx, t.keys...).Err()
}

// unwatchKeys ends the watch before the connection is reused. If UNWATCH fails, the connection is broken and not reused.
func (t transaction) unwatchKeys(ctx context.Context, tx *redis.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.store.cfg.Timeout)
	defer cancel()
	_ = Process(ctx, tx, redis.NewStatusCmd(ctx, "unwatch"))
}

func (t transaction) writeQueued(ctx context.Context, pipe redis.Pipeliner) (again bool, err error) {
	defer Shield(&err)
	ctx, cancel := context.WithTimeout(ctx, t.store.cfg.Timeout)
	defer cancel()
	cmds, err := pipe.Exec(ctx)
	if errors.Is(err, redis.Nil) { // a command has found no value, which is no error; look for errors of other commands
		err = nil
		if i := slices.IndexFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil && !errors.Is(cmd.Err(), redis.Nil) }); i >= 0 {
			err = cmds[i].Err()
		}
	}
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, redis.TxFailedErr):
		return true, fmt.Errorf("update %s: the keys change all the time", lease.QuoteNames(t.keys))
	case redis.HasErrorPrefix(err, "EXECABORT"): // Redis refused a command before it executed any
		refused := slices.IndexFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil && !redis.HasErrorPrefix(cmd.Err(), "EXECABORT") })
		if refused >= 0 {
			err = cmds[refused].Err()
		}
		return refused >= 0 && mayPass(err), fmt.Errorf("update %s: %w", lease.QuoteNames(t.keys), err)
	case IsReply(err):
		return false, fmt.Errorf("update %s: %w", lease.QuoteNames(t.keys), err)
	}
	return false, fmt.Errorf("update %s: %w", lease.QuoteNames(t.keys), Unknown(err))
}

// mayPass reports whether an error before the execution of a transaction may be temporary: a network error, or a server that is not ready.
func mayPass(err error) bool {
	if !IsReply(err) {
		return !errors.Is(err, redis.ErrClosed)
	}
	return slices.ContainsFunc([]string{"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "NOREPLICAS"},
		func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// Pass records a token for a resource, unless Redis has recorded a greater token.
func (c *Store) Pass(ctx context.Context, resource string, idle time.Duration, token lease.Token) error {
	r := c.execCalls(ctx, []call{c.fenceCall(resource, idle, token)})[0]
	switch {
	case r.err != nil:
		return fmt.Errorf("resource %q: %w", resource, r.err)
	case r.verdict == "stale": // the verdict needs no acknowledgement: the greater token was granted, even if a failover loses its record
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

// fenceCall returns the call for a fence. The observed state of the fence is cached under a name that no lock can have. The call has only one key, so
// that it works while a Cluster migrates the slot.
func (c *Store) fenceCall(resource string, idle time.Duration, token lease.Token) call {
	name := strings.TrimPrefix(c.key(resource), c.cfg.Prefix) + ":fence"
	return c.callOn(c.keys(name, "")[:1], idle, c.scripts.Fence, name, "", fenceParams.encode(token)...)
}
