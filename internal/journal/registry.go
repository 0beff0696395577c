package journal

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// forgetReplica is the minimum time for which the index keeps the id of a replica that has disappeared. It keeps the id for ten times the time to live of a
// registration if that is longer.
const forgetReplica = 10 * time.Minute

type registry struct{ *namespace }

// A Replica is the registration of a replica.
type Replica struct {
	// ID identifies the replica. It is new with each start, and has 1 to MaxRunID visible ASCII characters without "|".
	ID string `json:"id"`
	// Name is for display only. Two replicas may have the same name.
	Name string `json:"name"`
	// Process identifies the replica's process on its machine, so that another replica on the same machine can check whether the process lives. It is "" if the
	// process can't be identified.
	Process string `json:"process,omitempty"`
	Version string `json:"version"`
	// Started is the start of the process. Seen is the time of this registration. Both are by an estimate of the clock of Redis.
	Started time.Time `json:"started"`
	Seen    time.Time `json:"seen"`
	// ConfigDigest distinguishes replicas with different configurations.
	ConfigDigest string `json:"config_digest"`
	// ZoneData is the version of the replica's time zone data. Zones maps each time zone of its jobs to a hash of the coming clock changes. Both are empty in
	// entries of older versions.
	ZoneData string            `json:"zone_data,omitempty"`
	Zones    map[string]string `json:"zones,omitempty"`
	// Refused is the first fault of a newer configuration that the replica has refused; "" if there is none.
	Refused string `json:"refused,omitempty"`
	// Heartbeat is the error of the heartbeat that the replica sends as the leader; "" if there is none.
	Heartbeat string `json:"heartbeat,omitempty"`
	// RedisAccess is the reason why new connections of the replica to Redis fail or soon will, such as an unreadable file or an expiring certificate. It is ""
	// if there is none.
	RedisAccess string `json:"redis_access,omitempty"`
	// Unable is the reason why the machine can't start programs, so that the replica claims nothing; "" if it can.
	Unable string `json:"unable,omitempty"`
	// Unstartable maps the jobs that the replica could not start at the last attempt to the reason; nil if there are none.
	Unstartable map[string]string `json:"unstartable,omitempty"`
	// ClockOffsetMS is the time by which the replica's wall clock is ahead of the clock of Redis, in milliseconds.
	ClockOffsetMS int64 `json:"clock_offset_ms"`
	// ClockErrorMS is the maximum error of ClockOffsetMS, in milliseconds. The error is due to the duration of a call to Redis. It is 0 in entries of older
	// versions.
	ClockErrorMS int64 `json:"clock_error_ms,omitempty"`
	// Running is the number of the replica's runs. MaxRunning is the maximum number; 0 in entries of older versions.
	Running    int `json:"running"`
	MaxRunning int `json:"max_running,omitempty"`
	// LeaseMargin is the smallest margin with which the replica renewed or lost a lease within the last minute; nil if it had no lease.
	LeaseMargin *LeaseMargin `json:"lease_margin,omitempty"`
	// Expected is the number of replicas that should be up, from this replica's configuration; 0 if the configuration does not set it, and in entries of older
	// versions.
	Expected int `json:"expected,omitempty"`
	// Labels are matched by the `where` of jobs; nil in entries of older versions.
	Labels map[string]string `json:"labels,omitempty"`
	// Draining is set while the replica drains: it ends its last runs and accepts no more.
	Draining bool `json:"draining,omitempty"`
	// StoodStill is the last interval in which the replica's process did not run; nil if there was none.
	StoodStill *Interval `json:"stood_still,omitempty"`
	// Since maps the replica's problems, by their codes in `status`, to the time at which each one began; nil in entries of older versions.
	Since map[string]time.Time `json:"since,omitempty"`
}

// An Interval is the time between two instants, by an estimate of the clock of Redis.
type Interval struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Length returns the duration of the interval.
func (i Interval) Length() time.Duration { return i.To.Sub(i.From) }

const mostProblems = 20

func (i *Interval) isSound() bool { return i == nil || isSound(i.From) && isSound(i.To) }

// A Registration is the state that Register found in Redis.
type Registration struct {
	// Known is set if the replica's previous registration still existed. Otherwise, it had expired, another replica had removed it, or Redis had lost it.
	Known bool
	// Epoch is the epoch of the namespace's data, a random value that never expires. The first registration sets it. If it differs from the epoch at the last
	// registration, Redis has lost its data. In a Redis Cluster the epoch may be on another master than the registration. If that master does not answer, Epoch
	// is "" and EpochError is set.
	Epoch      string
	EpochError error
}

// Register records that a replica is alive, for ttl by the clock of Redis. Call it again with current facts well before ttl has passed. It restores the epoch
// and the format of the data if Redis has lost them. If this fails, for example because their master in a Redis Cluster is down, Register only sets EpochError.
func (g registry) Register(ctx context.Context, r Replica, ttl time.Duration) (found Registration, err error) {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	text, err := r.encodeEntry(ttl)
	if err != nil {
		return found, err
	}
	var data sync.WaitGroup // in a separate pipeline, because the client fails all commands of a pipeline if one master hangs
	data.Go(func() { found.Epoch, found.EpochError = g.restoreEpoch(ctx) })
	gone := r.Seen.Add(-max(forgetReplica, 10*ttl)).UnixMilli()
	var before *redis.IntCmd // 1 if the previous registration still exists; SET could show this too, but only since Redis 6.2
	cmds, err := g.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		before = p.Exists(ctx, g.key("replica:"+r.ID))
		p.Set(ctx, g.key("replica:"+r.ID), text, ttl)
		p.ZAdd(ctx, g.key("replicas"), redis.Z{Score: float64(r.Seen.UnixMilli()), Member: r.ID})
		p.ZRemRangeByScore(ctx, g.key("replicas"), "-inf", formatNumber(gone))
		return nil
	})
	err = allErrors(ctx, cmds, err)
	if found.Known = before.Val() > 0; err == nil && !found.Known {
		g.removePredecessors(ctx, r.Name)
	}
	data.Wait()
	if err != nil {
		return Registration{}, fmt.Errorf("register replica %s: %w", r.ID, err)
	}
	return found, nil
}

func (r Replica) encodeEntry(ttl time.Duration) ([]byte, error) {
	if !isRunID(r.ID) || ttl < time.Millisecond || r.Seen.IsZero() {
		return nil, fmt.Errorf("register replica: %w: id %.40q, ttl %v, seen %v", ErrInvalid, r.ID, ttl, r.Seen)
	}
	r.Started, r.Seen = r.Started.UTC(), r.Seen.UTC()
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("register replica %s: %w: %w", r.ID, ErrInvalid, err)
	}
	return text, nil
}

// restoreEpoch sets the epoch and the format if they are missing, and returns the epoch. If the value of the key is damaged, restoreEpoch deletes the key and
// returns an error, and the next registration sets a new epoch. An epoch that was set at once could be deleted by another replica that has found the same
// damage.
func (g registry) restoreEpoch(ctx context.Context) (string, error) {
	var epoch *redis.StringCmd
	cmds, err := g.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SetNX(ctx, g.key("format"), Format, 0)
		p.SetNX(ctx, g.key("epoch"), rand.Text(), 0)
		epoch = p.Get(ctx, g.key("epoch"))
		return nil
	})
	if epoch.Val() != "" {
		return epoch.Val(), nil
	}
	if err == nil || isWrongType(epoch.Err()) {
		_ = g.redis.Del(ctx, g.key("epoch")).Err()
		return "", fmt.Errorf("read the epoch of the data: %s: %w", g.key("epoch"), ErrCorrupt)
	}
	return "", fmt.Errorf("read the epoch of the data: %w", cmp.Or(allErrors(ctx, cmds, err), err)) // err is redis.Nil if the key was deleted in the meantime
}

// Deregister records that a replica has ended, so that it does not count as lost. An unknown id is not an error.
func (g registry) Deregister(ctx context.Context, id string) error {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	cmds, err := g.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, g.key("replica:"+id))
		p.ZRem(ctx, g.key("replicas"), id)
		return nil
	})
	// After this replica registered, the leader may have listed an earlier replica of the same name as lost. An error does not matter, because the list is for
	// display only.
	_ = g.redis.ZRem(ctx, g.key("lost"), NameOf(id)).Err()
	return wrapIf("deregister replica "+id, allErrors(ctx, cmds, err))
}

// Replicas returns the replicas that are alive, by name and then id. Entries that no replica wrote are left out, with an error that wraps ErrCorrupt.
func (g registry) Replicas(ctx context.Context) ([]Replica, error) {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	index := g.redis.ZRevRange(ctx, g.key("replicas"), 0, mostListed-1)
	if err := errorOf(ctx, index); err != nil {
		return nil, fmt.Errorf("list replicas: %w", err)
	}
	var replicas []Replica
	damaged, err := pipelineEach(ctx, g.namespace, index.Val(), maxBatch, func(p redis.Pipeliner, id string) *redis.StringCmd {
		return p.Get(ctx, g.key("replica:"+id))
	}, func(id string, found *redis.StringCmd) error {
		var r Replica
		if found.Err() != nil { // it has expired, or sortErrors reports it as damaged
			return nil
		}
		if err := decodeEntry(found.Val(), &r, &r.ID, id); err != nil {
			return fmt.Errorf("replica %.40q: %w", id, err)
		}
		replicas = append(replicas, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list replicas: %w", err)
	}
	slices.SortFunc(replicas, func(a, b Replica) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return replicas, wrapIf("list replicas", damaged)
}

func (r *Replica) findFault() string {
	switch {
	case !isSound(r.Started) || !isSound(r.Seen) || !r.StoodStill.isSound():
		return "a time beyond the calendar"
	case r.Running < 0 || r.Running > mostRunning || r.MaxRunning < 0 || r.MaxRunning > mostRunning:
		return fmt.Sprintf("%d runs of %d", r.Running, r.MaxRunning)
	case r.Expected < 0 || r.Expected > mostListed:
		return fmt.Sprintf("%d replicas expected", r.Expected)
	case len(r.Since) > mostProblems || slices.ContainsFunc(slices.Collect(maps.Values(r.Since)), func(at time.Time) bool { return !isSound(at) }):
		return fmt.Sprintf("%d problems, or one since a time beyond the calendar", len(r.Since))
	case !r.LeaseMargin.isSound():
		return fmt.Sprintf("a renewal with %d ms left of a lease of %d ms", r.LeaseMargin.LeftMS, r.LeaseMargin.LeaseMS)
	}
	return ""
}

// idSuffix is the length of the part of a replica's id after the name: a hyphen and eight letters.
const idSuffix = len("-") + 8

// NameOf returns the name in a replica's id.
func NameOf(id string) string { return id[:max(len(id)-idSuffix, 0)] }

// A LostReplica is a replica that disappeared without deregistering.
type LostReplica struct {
	ID   string
	Seen time.Time // time of the last registration, by the replica's estimate of the clock of Redis
}

// LostReplicas returns the replicas that have disappeared and were not claimed with ClaimLost. They stay listed for at least ten minutes. Even if the error
// wraps ErrCorrupt, the list is valid.
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

// removePredecessors removes the lost replicas with this name from the lists of LostReplicas and RecentlyLost, because a replica of the name is up again.
// Errors do not matter, because the lists are for display only.
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

// RememberLost is the time for which [registry.RecentlyLost] lists a lost replica. MaxLost is the maximum number of replicas in this list: the oldest make room.
// Only the newest ShownLost of them are shown, and have instances.
const RememberLost, MaxLost, ShownLost = 24 * time.Hour, 1000, 100

// ClaimLost removes a lost replica from the list of [registry.LostReplicas]. If several callers claim the same replica, claimed is true for one of them, which
// reports the loss. ClaimLost then adds the name of the replica to the list of [registry.RecentlyLost], unless a replica with this name is registered. It also
// adds the name if the removal failed, because Redis may have executed the removal. claimed is valid even if the name could not be added.
func (g registry) ClaimLost(ctx context.Context, lost LostReplica) (claimed bool, err error) {
	claimed, err = g.takeLost(ctx, lost.ID)
	if !claimed && err == nil {
		return false, nil
	}
	return claimed, errors.Join(err, g.listLost(ctx, lost))
}

func (g registry) takeLost(ctx context.Context, id string) (taken bool, err error) {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	removed := g.redis.ZRem(ctx, g.key("replicas"), id)
	err = errorOf(ctx, removed) // the reply is 0 if the replica has deregistered, was forgotten, or was claimed by another caller
	return err == nil && removed.Val() > 0, wrapIf("claim lost replica "+id, err)
}

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
		p.ZRemRangeByRank(ctx, g.key("lost"), 0, -1-MaxLost)
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

// RecentlyLost returns the newest replicas that were claimed as lost and have no successor of the same name, from new to old, at most most of them. The oldest may
// have been lost for longer than [RememberLost], because each new entry extends the life of the whole list.
func (g registry) RecentlyLost(ctx context.Context, most int) ([]NamedLost, error) {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	claimed := g.redis.ZRevRangeWithScores(ctx, g.key("lost"), 0, int64(most-1))
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

// ForgetLost removes the name of a lost replica from the list of [registry.RecentlyLost], and its ids from the list of [registry.LostReplicas].
func (g registry) ForgetLost(ctx context.Context, name string, ids ...string) error {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	cmds, err := g.redis.Pipelined(ctx, func(p redis.Pipeliner) error { // not in a MULTI, because the keys may be on different nodes of a Redis Cluster
		for _, id := range ids { // ids are removed before the name: the leader would report a remaining id as newly lost, and list the name again
			p.ZRem(ctx, g.key("replicas"), id)
		}
		p.ZRem(ctx, g.key("lost"), name)
		return nil
	})
	return wrapIf("forget replica "+name, allErrors(ctx, cmds, err))
}
