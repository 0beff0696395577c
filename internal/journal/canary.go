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

// A Canary detects that a single master of a Redis Cluster has lost its data. It keeps a key on each master, and Look reports a missing key. With a single
// Redis server, [Registration.Known] and the epoch detect a loss, and a Canary does nothing. Only one goroutine may use a Canary.
type Canary struct {
	*namespace
	replica string
	alive   map[string]written // by key
}

// written describes the last write of a key that Redis answered.
type written struct {
	until time.Time // the key can't expire before this time, by this machine's clock
	sure  bool      // false if Redis did not answer a later write, which may have recreated a lost key
}

// Canary returns a Canary for the replica with this id.
func (n *namespace) Canary(replica string) *Canary {
	return &Canary{namespace: n, replica: replica, alive: map[string]written{}}
}

// Look writes a key to each master of a Redis Cluster, with the time to live ttl, and returns whether the earlier keys still existed. If a master does not
// answer, Look returns an error. The next call that finds this master's key returns CanaryUnsure, because the unanswered write may have recreated a lost
// key. So does a call that misses a key that may have expired: its last write is older than ttl minus the time-out.
func (c *Canary) Look(ctx context.Context, ttl time.Duration) (found CanaryState, err error) {
	cluster, ok := c.redis.(*redis.ClusterClient)
	if !ok {
		return CanaryIntact, nil
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	chosen, err := c.chooseKeys(ctx, cluster)
	if err != nil {
		return CanaryIntact, fmt.Errorf("look at each master: %w", err)
	}
	keys := slices.Collect(maps.Keys(c.alive)) // includes keys whose hash slot has moved to another master
	for _, key := range chosen {
		if _, known := c.alive[key]; !known {
			keys = append(keys, key)
		}
	}
	var failures multierr.List
	until := time.Now().Add(ttl - c.timeout)
	before, set := c.writeKeys(ctx, keys, ttl)
	now := time.Now()
	for i, key := range keys {
		failed := errors.Join(before[i].Err(), set[i].Err())
		found = max(found, c.updateState(key, before[i].Val() > 0, failed, now, until))
		if failed == nil && !slices.Contains(chosen, key) {
			delete(c.alive, key) // the master has another key now, or the node is no longer a master
		}
		failures.Add(failed)
	}
	return found, wrapIf("look at each master", failures.Err())
}

// updateState records the result of writing one key, and returns whether the master has lost the key since the previous write. found is true if the key existed
// before this write. until is the time before which the new key can't expire.
func (c *Canary) updateState(key string, found bool, failed error, now, until time.Time) CanaryState {
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

// A CanaryState shows whether the masters still have the keys of a replica. If masters differ, the greatest state counts.
type CanaryState int

// The states.
const (
	CanaryIntact CanaryState = iota
	// CanaryUnsure means that a master may have lost its data: its key is missing but may have expired, or a write that Redis did not answer may have recreated
	// the key.
	CanaryUnsure
	CanaryMissing // a master has lost its data
)

// chooseKeys returns one key per master. It tries 1,000 keys, so that it very probably finds even a master that has only 0.5 % of the hash slots.
func (c *Canary) chooseKeys(ctx context.Context, cluster *redis.ClusterClient) (keys []string, err error) {
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

// writeKeys writes the keys. For each key, before has the reply to an EXISTS before the write, and set has the reply to the write. Errors are in the replies.
func (c *Canary) writeKeys(ctx context.Context, keys []string, ttl time.Duration) (before []*redis.IntCmd, set []*redis.StatusCmd) {
	_, _ = c.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			before = append(before, p.Exists(ctx, key))
			set = append(set, p.Set(ctx, key, "", ttl))
		}
		return nil
	})
	return before, set
}
