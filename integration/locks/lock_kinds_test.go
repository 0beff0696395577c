package locks

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// The command `cronclave lock` keeps its promises on Sentinel, a Cluster and a quorum as on one Redis (P3, P4).
// Promise: P3, quorum
func TestLockOnOtherServers(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *harness.Cluster{
		"Sentinel": func(t *testing.T) *harness.Cluster {
			return harness.NewClusterAt(t, harness.StartTrio(t, nil).URL, warehouse)
		},
		"Cluster": func(t *testing.T) *harness.Cluster {
			return harness.NewClusterAt(t, harness.StartCluster(t).URL, warehouse)
		},
		"quorum": func(t *testing.T) *harness.Cluster {
			c, _ := harness.NewQuorumCluster(t, warehouse)
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			checkOneHolder(t, c)
			checkSlotsAndPools(t, c)
		})
	}
}

// A lock without a majority ends its command before its lease. The test freezes three of five masters for longer than
// the lease, and no other client has the lock before they are back (P3, P4).
// Promise: P3, quorum
func TestLockWithoutAMajority(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c, servers := harness.NewQuorumCluster(t, "")
	r := c.Lock(t, "r", "away", []string{"--lease", "6s"}, append([]string{"-ignore-term", "-child"}, harness.Forever...)...)
	first := c.AwaitHolder(t, "r", "away")
	end := c.FreezeAfterRenewal(t, servers, servers[:3], "away")
	lines := c.Lines(t, "away")
	last := lines[len(lines)-1]
	endMono := last.Mono + end.UnixMicro() - last.Micros // the same instant by the machine's clock
	r.WantEnd(t, harness.Soon, 76, "lock away: lease lost: not renewed in time")
	for _, l := range harness.RunLines(first.RunID, c.Lines(t, "away")) {
		if l.Mono >= endMono {
			t.Errorf("it wrote after the lease's end at %dµs: %v", endMono, l)
		}
		if !harness.HasEnded(l.PID) {
			t.Errorf("process %d is alive after the end of the lock", l.PID)
		}
	}
	c.Lock(t, "late", "away", []string{"--wait", "100ms"}).WantEnd(t, harness.Soon, 69, "3 of the 5 masters of the quorum do not answer")
	for _, s := range servers[:3] {
		s.Unpause()
	}
	c.Lock(t, "again", "away", []string{"--wait", "1m"}).WantEnd(t, harness.Soon, 0, "")
	if second := c.AwaitHolder(t, "again", "away"); second.Token <= first.Token {
		t.Errorf("the token did not grow:\n%s", harness.TextOf([]harness.Line{first, second}))
	}
}

// A lock on a quorum works while two of five masters, and the Redis of the history, hang.
// Promise: quorum
func TestLockOnAQuorumWithAHungMinority(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s, servers := harness.StartRedis(t, harness.RedisOpts{}), harness.Masters(t)
	c := harness.OnQuorum(t, s, harness.UrlsOf(servers), "")
	harness.Eventually(t, harness.StartTimeout, "all masters vote", func() bool { // on a busy machine one may join with the next lock
		c.Lock(t, "first", "needed", nil).WantEnd(t, harness.Soon, 0, "")
		return !slices.ContainsFunc(servers, func(s *harness.RedisServer) bool { return !s.Votes(t) })
	})
	for _, hung := range append(servers[1:3:3], s) {
		hung.Pause()
	}
	c.Lock(t, "second", "needed", nil).WantEnd(t, harness.Soon, 0, "")
}

// A lock leaves no vote on a master that hears every request later than the others.
// Promise: quorum
func TestLockLeavesNoVoteOnAFarMaster(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	servers := harness.Masters(t)
	urls, far := harness.UrlsOf(servers), servers[len(servers)-1]
	way := harness.StartProxy(t, far.Client.Options().Addr, nil, nil)
	urls[len(urls)-1] = way.URL
	c := harness.OnQuorum(t, harness.StartRedis(t, harness.RedisOpts{}), urls, "")
	c.Lock(t, "first", "needed", nil).WantEnd(t, harness.Soon, 0, "")       // a quorum begins with all
	late := func() bool { <-time.After(6 * time.Millisecond); return true } // a first call makes some thirty of these trips
	way.Break(harness.Fault{Requests: late, Replies: late})
	for i, held := range []string{"0", "80ms", "150ms", "400ms"} { // all are told of a lease after 50 ms
		name := fmt.Sprintf("l%d", i)
		c.Lock(t, "r", name, nil, "-for", held).WantEnd(t, harness.Soon, 0, "")
		if row := far.Client.HGet(t.Context(), c.LockKey(name), "r0").Val(); row != "" && row[0] != '-' {
			t.Errorf("%s was released, and the far master has %q", name, row)
		}
	}
}
