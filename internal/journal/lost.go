package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// idSuffix is the length of the part of a replica's id after the name: a hyphen and eight letters.
const idSuffix = len("-") + 8

// NameOf returns the name in a replica's id.
func NameOf(id string) string { return id[:max(len(id)-idSuffix, 0)] }

// A LostReplica is a replica that disappeared without deregistering.
type LostReplica struct {
	ID   string
	Seen time.Time // time of the last registration, by the replica's estimate of the clock of Redis
}

// LostReplicas returns the replicas that have disappeared and whose loss nobody has claimed with ClaimLost. They stay listed for some minutes. With an error
// that wraps ErrCorrupt, the list is valid.
func (g registry) LostReplicas(ctx context.Context) ([]LostReplica, error) {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	index := g.redis.ZRangeWithScores(ctx, g.key("replicas"), 0, -1)
	if err := errorOf(ctx, index); err != nil {
		return nil, fmt.Errorf("list replicas: %w", err)
	}
	var lost []LostReplica
	damaged, err := pipelineEach(ctx, g.namespace, index.Val(), maxBatch, func(p redis.Pipeliner, z redis.Z) *redis.IntCmd {
		return p.Exists(ctx, g.key(fmt.Sprintf("replica:%s", z.Member)))
	}, func(z redis.Z, there *redis.IntCmd) error {
		seen := time.UnixMilli(int64(z.Score)).UTC()
		if id, _ := z.Member.(string); isRunID(id) && isSound(seen) && there.Val() == 0 {
			lost = append(lost, LostReplica{id, seen})
		}
		return nil
	})
	return lost, wrapIf("look for lost replicas", multierr.Join(err, damaged))
}

// removePredecessors removes the lost replicas with this name from both lists, because a successor is up. It ignores errors, because the lists are for display
// only.
func (g registry) removePredecessors(ctx context.Context, name string) {
	var ids []string
	lost, _ := g.LostReplicas(ctx)
	for _, l := range lost {
		if NameOf(l.ID) == name {
			ids = append(ids, l.ID)
		}
	}
	_ = g.ForgetLost(ctx, name, ids...)
}

// RememberLost is the time for which a lost replica is listed. mostLost is the maximum number of listed ones.
const RememberLost, mostLost = 24 * time.Hour, 100

// ClaimLost removes a lost replica from the list of [registry.LostReplicas], and reports whether this call removed it. So only one of several callers reports
// the loss. It also adds the name to the list of [registry.RecentlyLost], unless a replica of that name is registered. The name stays there until a replica of
// that name registers. If the removal returns an error, the name is added too, because the removal may have succeeded. claimed is valid even if the second list
// could not be written.
func (g registry) ClaimLost(ctx context.Context, lost LostReplica) (claimed bool, err error) {
	claimed, err = g.takeLost(ctx, lost.ID)
	if !claimed && err == nil {
		return false, nil
	}
	return claimed, errors.Join(err, g.listLost(ctx, lost))
}

// takeLost removes a lost replica from the list of replicas, and reports whether this call removed it.
func (g registry) takeLost(ctx context.Context, id string) (taken bool, err error) {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	removed := g.redis.ZRem(ctx, g.key("replicas"), id)
	err = errorOf(ctx, removed) // 0 if the replica has deregistered, was forgotten, or was claimed by another caller
	return err == nil && removed.Val() > 0, wrapIf("claim lost replica "+id, err)
}

// listLost adds the name of a lost replica to the list of [registry.RecentlyLost].
func (g registry) listLost(ctx context.Context, lost LostReplica) error {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	name := NameOf(lost.ID)
	up, _ := g.Replicas(ctx) // a replica that this call misses removes the name when it deregisters
	if slices.ContainsFunc(up, func(r Replica) bool { return r.Name == name }) {
		return nil
	}
	cmds, err := g.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, g.key("lost"), redis.Z{Score: float64(lost.Seen.UnixMilli()), Member: name})
		p.ZRemRangeByRank(ctx, g.key("lost"), 0, -1-mostLost)
		p.PExpire(ctx, g.key("lost"), RememberLost)
		return nil
	})
	return wrapIf("list lost replica "+lost.ID, allErrors(ctx, cmds, err))
}

// A NamedLost is a lost replica, by name.
type NamedLost struct {
	Name string
	Seen time.Time // as in [LostReplica]
}

// RecentlyLost returns the replicas that were claimed as lost and have no successor of the same name, from new to old. The oldest may have been lost for longer
// than [RememberLost], because each new entry extends the life of the whole list.
func (g registry) RecentlyLost(ctx context.Context) ([]NamedLost, error) {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	claimed := g.redis.ZRevRangeWithScores(ctx, g.key("lost"), 0, mostLost-1)
	if err := errorOf(ctx, claimed); err != nil {
		return nil, fmt.Errorf("list lost replicas: %w", err)
	}
	var lost []NamedLost
	for _, z := range claimed.Val() {
		name, _ := z.Member.(string)
		if seen := time.UnixMilli(int64(z.Score)).UTC(); isRunID(name) && isSound(seen) {
			lost = append(lost, NamedLost{name, seen})
		}
	}
	return lost, nil
}

// ForgetLost removes a lost replica from the lists of [registry.RecentlyLost] and [registry.LostReplicas]. The first list has its name, the second its ids.
func (g registry) ForgetLost(ctx context.Context, name string, ids ...string) error {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	cmds, err := g.redis.Pipelined(ctx, func(p redis.Pipeliner) error { // the keys may be on different nodes of a Redis Cluster
		for _, id := range ids { // first, because the leader would report the remaining ones as newly lost
			p.ZRem(ctx, g.key("replicas"), id)
		}
		p.ZRem(ctx, g.key("lost"), name)
		return nil
	})
	return wrapIf("forget replica "+name, allErrors(ctx, cmds, err))
}
