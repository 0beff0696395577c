package scheduler

import (
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

const (
	// rankStep is the delay of a claim per rank. It is about the time that a grant and its event take.
	rankStep = 5 * time.Millisecond
	// maxRankDelay is the maximum delay, for the last ranks in a large cluster.
	maxRankDelay = 100 * time.Millisecond
	// groups is the number of groups of jobs. If many ticks are due at once, the replica with the first rank for a tick claims the groups in order, and
	// the replicas with later ranks begin with the last group. So they do not claim the ticks that the first replica is about to win.
	groups = 16
)

// rankOf returns the rank of self for a tick of a job: the number of peers that claim before it. It uses rendezvous hashing (Thaler and Ravishankar
// 1998), so that each peer comes first for an equal share of the ticks, even with few jobs.
func rankOf(job string, tick time.Time, self string, peers []string) int {
	place := append(make([]byte, 0, 128), job...)
	place = append(strconv.AppendInt(append(place, 0), tick.Unix(), 10), 0)
	weight := func(peer string) uint64 { return xxhash.Sum64(append(place, peer...)) }
	n, own := 0, weight(self)
	for _, p := range peers {
		if w := weight(p); p != self && (w > own || w == own && p > self) {
			n++
		}
	}
	return n
}

// ownIdentity returns the identity of this replica among its peers, or "" without Peers.
func (c *Config) ownIdentity() string {
	if c.Peers == nil {
		return ""
	}
	self, _ := c.Peers(nil)
	return self
}

// missedReason returns the reason for which a tick of a job was missed. On a replica without the job's labels, it replaces Down by Labels if no live
// replica has the labels.
func (c *Config) missedReason(t *task, reason agenda.Reason) agenda.Reason {
	if reason == agenda.Down && t.Elsewhere && c.Peers != nil {
		if _, fit := c.Peers(t.Where); len(fit) == 0 {
			return agenda.Labels
		}
	}
	return reason
}

// turnDelay returns the delay of this replica's claim of a tick, by its rank. The first PerTick ranks claim without a delay.
func (c *Config) turnDelay(t *task, tick time.Time) time.Duration {
	if c.Peers == nil {
		return 0
	}
	self, all := c.Peers(t.Where)
	place := max(rankOf(t.Name, tick, self, all)-(t.PerTick-1), 0)
	group := time.Duration(xxhash.Sum64String(t.Name) % groups)
	if place > 0 {
		group = groups - group
	}
	return min(time.Duration(place)*rankStep, maxRankDelay) + group*time.Nanosecond
}
