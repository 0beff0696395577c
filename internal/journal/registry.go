package journal

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// forgetReplica is the minimum time for which the index keeps the id of a replica that has disappeared; it is ten times the time to live if that is longer.
const forgetReplica = 10 * time.Minute

// registry has the registrations of the replicas.
type registry struct{ *namespace }

// A Replica is the registration of a replica.
type Replica struct {
	// ID is its identity, new with each start: 1 to MaxRunID visible ASCII characters without "|".
	ID string `json:"id"`
	// Name is its name for people; two replicas may have the same.
	Name string `json:"name"`
	// Process identifies its process on its machine, so that another replica there can check whether it lives; "" if that is not possible.
	Process string `json:"process,omitempty"`
	Version string `json:"version"`
	// Started is the start of the process, and Seen the time of this registration, by an estimate of the server's clock.
	Started time.Time `json:"started"`
	Seen    time.Time `json:"seen"`
	// ConfigDigest distinguishes replicas with different configurations.
	ConfigDigest string `json:"config_digest"`
	// ZoneData is the version of its time zone data. Zones has a hash of the coming clock changes for each zone of its jobs, by the zone's name. Both are empty
	// in entries of older versions.
	ZoneData string            `json:"zone_data,omitempty"`
	Zones    map[string]string `json:"zones,omitempty"`
	// Refused is the first fault of a newer configuration that the replica has refused; "" if there is none.
	Refused string `json:"refused,omitempty"`
	// Heartbeat is the error of the heartbeat that it sends as the leader; "" if there is none.
	Heartbeat string `json:"heartbeat,omitempty"`
	// RedisAccess is the reason that new connections of the replica to Redis fail, or soon will: a file that can't be read, or a certificate that ends; "" if
	// there is none.
	RedisAccess string `json:"redis_access,omitempty"`
	// Unable is the reason that the replica claims nothing: its machine can't start programs; "" if it can.
	Unable string `json:"unable,omitempty"`
	// Unstartable has the jobs that it could not start at the last try, with the reason; nil if there are none.
	Unstartable map[string]string `json:"unstartable,omitempty"`
	// ClockOffsetMS is the time by which its wall clock is ahead of the server's, in milliseconds.
	ClockOffsetMS int64 `json:"clock_offset_ms"`
	// ClockErrorMS is the maximum error of ClockOffsetMS, in milliseconds, because a call to the server takes a while; 0 in entries of older versions.
	ClockErrorMS int64 `json:"clock_error_ms,omitempty"`
	// Running is the number of its runs, MaxRunning the maximum number; 0 in entries of older versions.
	Running    int `json:"running"`
	MaxRunning int `json:"max_running,omitempty"`
	// LeaseMargin is the smallest margin at which a lease was renewed or lost within the last minute; nil if there was none.
	LeaseMargin *LeaseMargin `json:"lease_margin,omitempty"`
	// Expected is the number of replicas that should be up, by its configuration; 0 if the configuration does not have it, and in entries of older versions.
	Expected int `json:"expected,omitempty"`
	// Labels are matched by the `where` of jobs; nil in entries of older versions.
	Labels map[string]string `json:"labels,omitempty"`
	// Draining is set while it ends its last runs and accepts no more.
	Draining bool `json:"draining,omitempty"`
	// StoodStill is the last time in which its process did not run; nil if there was none.
	StoodStill *Interval `json:"stood_still,omitempty"`
	// Since has the start of each of the replica's problems, by the codes of a status; nil in entries of older versions.
	Since map[string]time.Time `json:"since,omitempty"`
}

// An Interval is the time between two instants, by an estimate of the server's clock.
type Interval struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Length returns the duration of the interval.
func (i Interval) Length() time.Duration { return i.To.Sub(i.From) }

// mostProblems is the maximum size of [Replica.Since].
const mostProblems = 20

func (i *Interval) isSound() bool { return i == nil || isSound(i.From) && isSound(i.To) }

// A Registration is what Redis had when a replica registered.
type Registration struct {
	// Known is set if the replica's registration was still there. If not, it has expired, another replica has removed it, or Redis has lost it.
	Known bool
	// Epoch is the epoch of the namespace's data. The first registration sets it to a random value that never expires: a change since the last registration
	// means that Redis has lost its data. In a Cluster it may be on another master; if that does not answer, Epoch is "" and EpochError is set.
	Epoch      string
	EpochError error
}

// Register records that a replica is alive, for ttl by the server's clock. Call it again, with present facts, well before ttl has passed. It restores the
// epoch and the format of the data if Redis has lost them. In a Cluster these may be on other masters, which may be down.
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
	var before *redis.IntCmd // SET returns this too, but only from Redis 6.2 on
	cmds, err := g.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		before = p.Exists(ctx, g.key("replica:"+r.ID))
		p.Set(ctx, g.key("replica:"+r.ID), text, ttl)
		p.ZAdd(ctx, g.key("replicas"), redis.Z{Score: float64(r.Seen.UnixMilli()), Member: r.ID})
		p.ZRemRangeByScore(ctx, g.key("replicas"), "-inf", formatNumber(gone))
		return nil
	})
	err = allErrors(ctx, cmds, err)
	known := before.Val() > 0
	if err == nil && !known {
		g.removePredecessors(ctx, r.Name)
	}
	data.Wait()
	if err != nil {
		return Registration{}, fmt.Errorf("register replica %s: %w", r.ID, err)
	}
	found.Known = known
	return found, nil
}

// encodeEntry returns the text of a registration that lives for ttl.
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

// restoreEpoch sets the epoch and the format if they are missing, and returns the epoch. A key that is not an epoch is deleted, and the next registration
// sets one: if this one did, another replica could have read a different one meanwhile.
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
	return "", fmt.Errorf("read the epoch of the data: %w", cmp.Or(allErrors(ctx, cmds, err), err)) // err: the key was deleted meanwhile
}

// Deregister records that a replica has ended, so that it does not count as lost. An unknown id is no error.
func (g registry) Deregister(ctx context.Context, id string) error {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	cmds, err := g.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, g.key("replica:"+id))
		p.ZRem(ctx, g.key("replicas"), id)
		return nil
	})
	// a leader may have claimed the predecessor after this one had registered; errors do not matter, as in Register
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
		if found.Err() != nil { // it has expired, or is reported as damaged
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
