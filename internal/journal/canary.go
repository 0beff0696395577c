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
	alive   map[string]bool // the keys that were written; false: it is not known whether the last time found them
}

// Canary returns one for a replica, by its id.
func (n *namespace) Canary(replica string) *Canary {
	return &Canary{namespace: n, replica: replica, alive: map[string]bool{}}
}

// Look writes to each master, for ttl by its clock, and is called again well before that has passed. found is whether all that was
// written before was still there; when a master has not answered, which is an error, its next answer is in doubt.
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
	before, set := c.write(ctx, keys, ttl)
	for i, key := range keys {
		failed := errors.Join(before[i].Err(), set[i].Err())
		found = max(found, c.state(key, before[i].Val() > 0, failed))
		if failed == nil && !slices.Contains(chosen, key) {
			delete(c.alive, key) // its master has another one, or is none any more
		}
		failures.Add(failed)
	}
	return found, wrapIf("look at each master", failures.Err())
}

// state takes in the result for one key, and returns whether it was forgotten since it was written.
func (c *Canary) state(key string, found bool, failed error) CanaryState {
	sure, known := c.alive[key]
	if failed != nil {
		if known {
			c.alive[key] = false
		}
		return CanaryIntact
	}
	c.alive[key] = true
	switch {
	case !known || sure && found:
		return CanaryIntact
	case sure:
		return CanaryMissing
	}
	return CanaryUnsure
}

// CanaryState is whether masters still have what a replica wrote. A greater state of one master is that of all.
type CanaryState int

// The states.
const (
	CanaryIntact  CanaryState = iota
	CanaryUnsure              // a master has not answered meanwhile: it may have lost its data, and have the canary of a write whose answer was lost
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
