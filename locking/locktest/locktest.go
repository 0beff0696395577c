// Package locktest is the conformance suite of package locking. Each promise of a lock is one subtest, whose
// name is the theorem. Run it against every kind of server that is to keep them.
//
// A test of leases has to see them end, a ledger grow old and a server forget. Nothing waits for that here: the past is
// faked by writing the lock's keys, whose layout lua/state.lua of package locking documents. So a slow machine makes
// the suite slow, not wrong.
//
// Run it under the race detector: that takes half a minute on a server, two on a quorum. It is for Redis 5 or later, on a quorum 7.
package locktest

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Run runs the suite. connect returns a client of the server under test, which is closed after the test and which the suite adds a
// hook to: it must be a new one at each call, with ContextTimeoutEnabled. All keys written begin with "locktest:"
// and a random part, and are deleted, so the server may serve others too; only its scripts are flushed, before the rest of the
// suite runs, in parallel.
func Run(t *testing.T, connect func(t *testing.T) redis.UniversalClient) {
	run(t, oneServer, func(t *testing.T) []redis.UniversalClient { return []redis.UniversalClient{connect(t)} })
}

// RunQuorum is [Run] for a quorum: connect returns a client of each of its masters. The subtest NotOnAQuorum
// lists the theorems that a quorum can't serve, and demands that their calls return [locking.ErrQuorum].
func RunQuorum(t *testing.T, connect func(t *testing.T) []redis.UniversalClient) {
	run(t, ofQuorum, connect)
	t.Run("NotOnAQuorum", func(t *testing.T) {
		t.Parallel()
		for _, th := range theorems() {
			if th.needs&^ofQuorum != 0 {
				t.Logf("%s needs %v", th.name, th.needs&^ofQuorum)
			}
		}
		refuses(newBench(t, connect(t)))
	})
}

func theorems() []theorem {
	return slices.Concat(granting(), tokens(), ledger(), fanOut(), orphans(), chains(), forgetting(), lifetime(), stopping(), waiting(), delays(), pausing(), entering(), several(), updating(),
		fences(), removing(), damages(), quorums(), named())
}

func run(t *testing.T, has capability, connect func(t *testing.T) []redis.UniversalClient) {
	for _, th := range batches() {
		t.Run(th.name, func(t *testing.T) { th.test(newBench(t, connect(t))) })
	}
	for _, th := range theorems() {
		if th.needs&^has != 0 {
			continue
		}
		t.Run(th.name, func(t *testing.T) {
			t.Parallel()
			th.test(newBench(t, connect(t)))
		})
	}
}
