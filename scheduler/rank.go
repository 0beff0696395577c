package scheduler

import (
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

const (
	// rankStep is the delay of each rank behind the one before it: about the time that a grant and its event take.
	rankStep = 5 * time.Millisecond
	// maxRankDelay bounds the delay of the last ranks in a large cluster.
	maxRankDelay = 100 * time.Millisecond
	// groups is the number of groups of jobs. Of ticks that are due together, the first rank asks for one group after the other, and the later ranks
	// begin with the last group. So they help it from the other end, instead of claiming the ticks that it is about to be granted.
	groups = 16
)

// rankOf returns the number of peers that come before self for a tick of a job. It uses rendezvous hashing (Thaler and Ravishankar 1998): each tick has
// one first rank, and each peer is first equally often, even if there are few jobs.
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

// missedReason returns the reason for which a tick of a job was missed. A replica without the job's labels distinguishes whether another replica with them
// is alive.
func (c *Config) missedReason(t *task, reason agenda.Reason) agenda.Reason {
	if reason == agenda.Down && t.Elsewhere && c.Peers != nil {
		if _, fit := c.Peers(t.Where); len(fit) == 0 {
			return agenda.Labels
		}
	}
	return reason
}

// turnDelay returns the time for which this replica lets others ask first for a tick of a job. As many replicas as the tick has grants ask at once.
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
