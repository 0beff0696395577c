package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The command `cronclave lock` keeps its promises on Sentinel, a Cluster and a quorum as on one Redis (P3, P4).
// Promise: P3, quorum
func TestLockOnOtherServers(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *cluster{
		"Sentinel": func(t *testing.T) *cluster { return newClusterAt(t, startTrio(t, nil).URL, warehouse) },
		"Cluster":  func(t *testing.T) *cluster { return newClusterAt(t, startCluster(t).URL, warehouse) },
		"quorum": func(t *testing.T) *cluster {
			c, _ := newQuorumCluster(t, warehouse)
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
	slow(t)
	t.Parallel()
	c, servers := newQuorumCluster(t, "")
	r := c.lock(t, "r", "away", []string{"--lease", "6s"}, append([]string{"-ignore-term", "-child"}, forever...)...)
	first := c.awaitHolder(t, "r", "away")
	end := c.freezeAfterRenewal(t, servers, servers[:3], "away")
	lines := c.lines(t, "away")
	last := lines[len(lines)-1]
	endMono := last.Mono + end.UnixMicro() - last.Micros // the same instant by the machine's clock
	r.wantEnd(t, soon, 76, "lock away: lease lost: not renewed in time")
	for _, l := range of(first.RunID, c.lines(t, "away")) {
		if l.Mono >= endMono {
			t.Errorf("it wrote after the lease's end at %dµs: %v", endMono, l)
		}
		if !over(l.PID) {
			t.Errorf("process %d is alive after the end of the lock", l.PID)
		}
	}
	c.lock(t, "late", "away", []string{"--wait", "100ms"}).wantEnd(t, soon, 69, "3 of the 5 masters of the quorum do not answer")
	for _, s := range servers[:3] {
		s.Unpause()
	}
	c.lock(t, "again", "away", []string{"--wait", "1m"}).wantEnd(t, soon, 0, "")
	if second := c.awaitHolder(t, "again", "away"); second.Token <= first.Token {
		t.Errorf("the token did not grow:\n%s", text([]line{first, second}))
	}
}

// A lock on a quorum works while two of five masters, and the Redis of the history, hang.
// Promise: quorum
func TestLockOnAQuorumWithAHungMinority(t *testing.T) {
	t.Parallel()
	s, servers := startRedis(t, redisOpts{}), masters(t)
	c := onQuorum(t, s, urlsOf(servers), "")
	eventually(t, startTimeout, "all masters vote", func() bool { // on a busy machine one may join with the next lock
		c.lock(t, "first", "needed", nil).wantEnd(t, soon, 0, "")
		return !slices.ContainsFunc(servers, func(s *redisServer) bool { return !s.votes(t) })
	})
	for _, hung := range append(servers[1:3:3], s) {
		hung.Pause()
	}
	c.lock(t, "second", "needed", nil).wantEnd(t, soon, 0, "")
}

// A lock leaves no vote on a master that hears every request later than the others.
// Promise: quorum
func TestLockLeavesNoVoteOnAFarMaster(t *testing.T) {
	t.Parallel()
	servers := masters(t)
	urls, far := urlsOf(servers), servers[len(servers)-1]
	way := startProxy(t, far.Client.Options().Addr, nil, nil)
	urls[len(urls)-1] = way.url
	c := onQuorum(t, startRedis(t, redisOpts{}), urls, "")
	c.lock(t, "first", "needed", nil).wantEnd(t, soon, 0, "")               // a quorum begins with all
	late := func() bool { <-time.After(6 * time.Millisecond); return true } // a first call makes some thirty of these trips
	way.Break(fault{requests: late, replies: late})
	for i, held := range []string{"0", "80ms", "150ms", "400ms"} { // all are told of a lease after 50 ms
		name := fmt.Sprintf("l%d", i)
		c.lock(t, "r", name, nil, "-for", held).wantEnd(t, soon, 0, "")
		if row := far.Client.HGet(t.Context(), c.lockKey(name), "r0").Val(); row != "" && row[0] != '-' {
			t.Errorf("%s was released, and the far master has %q", name, row)
		}
	}
}

// freezeAfterRenewal freezes masters of a quorum between two renewals of a lock's lease of six seconds, and returns the lease's end. Renewals are due every two
// seconds; where the machine was so slow that the next one may have been under way, the masters go on and it tries again.
func (c *cluster) freezeAfterRenewal(t *testing.T, servers, victims []*redisServer, name string) (end time.Time) {
	t.Helper()
	const between, late = 1500 * time.Millisecond, 500 * time.Millisecond // late votes of the claim move the end a little, too
	eventually(t, startTimeout, "renewal that was seen in time", func() bool {
		unseen, before := time.Now(), c.majorityEnd(t, servers, name) // the renewal is after unseen
		eventually(t, soon, "renewal", func() bool {
			now := time.Now()
			if end = c.majorityEnd(t, servers, name); end.After(before.Add(late)) {
				return true
			}
			unseen = now
			return false
		})
		for _, s := range victims {
			s.Pause()
		}
		if time.Since(unseen) < between {
			return true
		}
		for _, s := range victims {
			s.Unpause()
		}
		return false
	})
	return end
}

// majorityEnd is when the lease of a lock's slot ends on so many masters that no majority is left.
func (c *cluster) majorityEnd(t *testing.T, servers []*redisServer, name string) time.Time {
	t.Helper()
	var ends []int64
	for _, s := range servers {
		row := strings.Split(s.Client.HGet(t.Context(), c.lockKey(name), "r0").Val(), "\n") // id, token, end ...
		if len(row) > 2 {
			ends = append(ends, must1(strconv.ParseInt(row[2], 10, 64))(t))
		}
	}
	slices.Sort(ends)
	slices.Reverse(ends)
	if majority := len(servers)/2 + 1; len(ends) >= majority {
		return time.UnixMicro(ends[majority-1])
	}
	return time.Time{}
}
