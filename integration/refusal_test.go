package integration

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// A request that the server refuses to write has done nothing, and the same id gets the row later. The servers refuse
// for a while, each for another reason.
// Promise: P5
func TestRefusalsOfTheServer(t *testing.T) {
	t.Parallel()
	plain := startRedis(t, redisOpts{})
	node := startCluster(t)
	type words []any
	for _, tc := range []struct {
		name        string
		on          *redisServer // nil for the node of the Cluster that has the lock
		spoil, mend []words
	}{
		{"READONLY", plain, []words{{"REPLICAOF", "127.0.0.1", "1"}}, []words{{"REPLICAOF", "NO", "ONE"}}},
		{"MASTERDOWN", plain, []words{{"CONFIG", "SET", "replica-serve-stale-data", "no"}, {"REPLICAOF", "127.0.0.1", "1"}}, []words{{"REPLICAOF", "NO", "ONE"}}},
		{"NOREPLICAS", plain, []words{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, []words{{"CONFIG", "SET", "min-replicas-to-write", "0"}}},
		{"OOM", plain, []words{{"CONFIG", "SET", "maxmemory", "1"}}, []words{{"CONFIG", "SET", "maxmemory", "0"}}},
		{"CLUSTERDOWN", nil, []words{{"CLUSTER", "DELSLOTS", lockSlot}}, []words{{"CLUSTER", "ADDSLOTS", lockSlot}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			on, client := tc.on, redis.UniversalClient(nil)
			if on == nil {
				on, client = node.owner(t, lockSlot), node.client(t)
			} else {
				client = redis.NewClient(clientOptions(on.instance.addr()))
			}
			defer client.Close()
			locks, err := engine.New(engine.Config{Redis: client, Prefix: "refusal:" + tc.name + ":", Timeout: patience})
			must(t, err)
			defer locks.Close()
			do := func(list []words) {
				t.Helper()
				for _, w := range list {
					must(t, on.Client.Do(t.Context(), w...).Err())
				}
			}
			r := engine.Request{Lock: "lock", ID: "one", Lease: time.Minute}
			other := engine.Request{Lock: "lock", ID: "other", Lease: time.Minute}

			do(tc.spoil)
			a := locks.Acquire(t.Context(), r)
			if a.Verdict != engine.Unknown || !errors.Is(a.Err, engine.ErrUnknown) || !redis.HasErrorPrefix(a.Err, tc.name) {
				t.Errorf("while the server refuses: %q, %v", a.Verdict, a.Err)
			}
			do(tc.mend)
			eventually(t, soon, "grant once the server takes writes again", func() bool {
				a = locks.Acquire(t.Context(), r)
				return a.Verdict == engine.Granted
			})
			if b := locks.Acquire(t.Context(), other); b.Verdict != engine.Held {
				t.Errorf("another one: %q, %v", b.Verdict, b.Err)
			}
			must(t, a.Lease.Release(t.Context()))
		})
	}
}

// lockSlot is the slot of a Cluster that has the hash tag {lock}.
const lockSlot = 8718
