package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/cronclave/cronclave/locking"
)

// On a Cluster without sharded channels waiters hear of grants on all its nodes, and do not only find them by
// polling. The Cluster looks like one of before Redis 7, as far as its commands show.
// Promise: P9
func TestWaitersHearOnAClusterWithoutShardedChannels(t *testing.T) {
	t.Parallel()
	const enough, tries, lease = 6, 60, time.Minute
	s := startCluster(t, "--rename-command", "SSUBSCRIBE", "without-ssubscribe", "--rename-command", "SPUBLISH", "without-spublish")
	clients := [2]*locking.Client{}
	for i := range clients {
		rdb := s.client(t)
		defer rdb.Close()
		clients[i] = must1(locking.New(locking.Config{Redis: rdb, Timeout: startTimeout}))(t)
		defer clients[i].Close()
	}
	heard := 0
	for i := 0; heard < enough; i++ {
		if i == tries {
			t.Fatalf("%d of %d grants were heard of", heard, tries)
		}
		name := fmt.Sprint("lock-", i)
		held := must1(clients[0].Mutex(name).Lock(t.Context()))(t)
		got := make(chan *locking.Lease, 1)
		go func() {
			l, err := clients[1].Mutex(name, locking.WithLease(lease)).Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		at := must1(s.nodes[0].Client.ClusterKeySlot(t.Context(), name).Result())(t)
		node := s.owner(t, int(at)).Client
		eventually(t, startTimeout, "a waiter", func() bool { return must1(node.ZCard(t.Context(), "locking:{"+name+"}:queue").Result())(t) > 0 })
		must(t, held.Release(t.Context()))
		l := <-got
		if l == nil {
			t.FailNow()
		}
		if l.Remaining() < lease/2 { // it was told, and has a second to confirm it
			heard++
		}
		must(t, l.Release(t.Context()))
	}
}
