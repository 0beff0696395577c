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

// A Canary detects data loss on single masters of a Cluster, by a key on each master. Look reports a master that has lost its key. With a single server the
// registration of [Journal.Register] has that purpose, and a Canary does nothing. It must be used by one goroutine.
type Canary struct {
	*namespace
	replica string
	alive   map[string]written // by key
}

// written is the state of a key after the last answered write.
type written struct {
	until time.Time // the key does not expire before, by this machine's clock
	sure  bool      // no later write was unanswered; such a write may have recreated a lost key
}

// Canary returns a canary for a replica, by its id.
func (n *namespace) Canary(replica string) *Canary {
	return &Canary{namespace: n, replica: replica, alive: map[string]written{}}
}

// Look writes a key to each master, with the time to live ttl. found reports whether all keys of earlier calls were still there. A master that does not
// answer is an error, and its next result is unsure. A missing key is also unsure if it may have expired, which is ttl minus a time-out after it was written.
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
	keys := slices.Collect(maps.Keys(c.alive)) // on any master: hash slots may have moved
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
			delete(c.alive, key) // its master has another key, or is no master any more
		}
		failures.Add(failed)
	}
	return found, wrapIf("look at each master", failures.Err())
}

// updateState records the result for one key. found reports whether the key was there before now; the new one lives until until. It returns whether the master has
// lost the key since the last write.
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

// CanaryState reports whether masters still have what a replica wrote. The state of several masters is the greatest one.
type CanaryState int

// The states.
const (
	CanaryIntact CanaryState = iota
	// a master may have lost its data: it did not answer, and a write without an answer may have been done; or the canary may have expired
	CanaryUnsure
	CanaryMissing // a master has lost its data
)

// chooseKeys returns a key for each master. It tries many keys, so that it also finds a master with only one hash slot in 200.
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

// writeKeys writes the keys. For each key it returns whether the key was there before, and the result of the write, both with their errors.
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
