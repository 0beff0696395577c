package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// Canary detects the data loss of single masters of a Cluster, by a key of its own on each. Look reports a master on which the key is gone. With a
// single server the entry of [Journal.Register] serves that purpose, and a Canary does nothing. A Canary belongs to one goroutine.
type Canary struct {
	*namespace
	replica string
	alive   map[string]written // by the keys
}

// written is a key as the last answered write left it.
type written struct {
	until time.Time // it has not expired before, by this machine's clock
	sure  bool      // no later look was without an answer: such a one may have found nothing, and written all the same
}

// Canary returns one for a replica, by its id.
func (n *namespace) Canary(replica string) *Canary {
	return &Canary{namespace: n, replica: replica, alive: map[string]written{}}
}

// Look writes to each master, for ttl by its clock. found is whether all that was written before was still there. When a master has not answered, which is
// an error, its next answer is in doubt. A key that is missing is in doubt, too, once ttl less a time-out has passed: it may have expired.
func (c *Canary) Look(ctx context.Context, ttl time.Duration) (found CanaryState, err error) {
	cluster, ok := c.redis.(*redis.ClusterClient)
	if !ok {
		return CanaryIntact, nil
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	chosen, err := c.choose(ctx, cluster)
	if err != nil {
		return CanaryIntact, fmt.Errorf("look at each master: %w", err)
	}
	keys := slices.Collect(maps.Keys(c.alive)) // on whichever master they are now
	for _, key := range chosen {
		if _, known := c.alive[key]; !known {
			keys = append(keys, key)
		}
	}
	var failures multierr.List
	until := time.Now().Add(ttl - c.timeout)
	before, set := c.write(ctx, keys, ttl)
	now := time.Now()
	for i, key := range keys {
		failed := errors.Join(before[i].Err(), set[i].Err())
		found = max(found, c.state(key, before[i].Val() > 0, failed, now, until))
		if failed == nil && !slices.Contains(chosen, key) {
			delete(c.alive, key) // its master has another one, or is none any more
		}
		failures.Add(failed)
	}
	return found, wrapIf("look at each master", failures.Err())
}

// state takes in the result for one key, which was found or not before now and lives until an instant, and returns whether it was forgotten since it was
// written.
func (c *Canary) state(key string, found bool, failed error, now, until time.Time) CanaryState {
	before, known := c.alive[key]
	if failed != nil {
		if known {
			c.alive[key] = written{before.until, false}
		}
		return CanaryIntact
	}
	c.alive[key] = written{until, true}
	switch {
	case !known || found && before.sure:
		return CanaryIntact
	case !found && now.Before(before.until):
		return CanaryMissing
	}
	return CanaryUnsure
}

// CanaryState is whether masters still have what a replica wrote. A greater state of one master is that of all.
type CanaryState int

// The states.
const (
	CanaryIntact  CanaryState = iota
	CanaryUnsure              // a master may have lost its data: it did not answer, and may have the canary of a write whose answer was lost; or the canary may have expired
	CanaryMissing             // a master has lost its data
)

// choose finds a key for each master. A few for each would do: with so many also a master is found that has one slot in 200.
func (c *Canary) choose(ctx context.Context, cluster *redis.ClusterClient) (keys []string, err error) {
	const enough = 1000
	found := map[string]bool{}
	for i := range enough {
		key := c.key(fmt.Sprintf("canary:%s:%d", c.replica, i))
		master, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		if addr := master.Options().Addr; !found[addr] {
			found[addr] = true
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// write has a result for each key: whether it was there, and whether it is now. Errors are in them.
func (c *Canary) write(ctx context.Context, keys []string, ttl time.Duration) (before []*redis.IntCmd, set []*redis.StatusCmd) {
	_, _ = c.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			before = append(before, p.Exists(ctx, key))
			set = append(set, p.Set(ctx, key, "", ttl))
		}
		return nil
	})
	return before, set
}
