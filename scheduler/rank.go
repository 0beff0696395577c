package scheduler

import (
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

const (
	// rankStep is by how much each rank asks later than the one before: about how long a grant and its event take.
	rankStep = 5 * time.Millisecond
	// maxRankDelay bounds that, where there are many replicas.
	maxRankDelay = 100 * time.Millisecond
	// groups is into how many the jobs fall: of ticks that are due together a favourite asks for one group after the other, and the others, should it take
	// long, for the last first. So they help it from the other end, instead of claiming the ticks that it is about to be granted.
	groups = 16
)

// rank returns how many of the peers come before self for a tick of a job: rendezvous hashing (Thaler and Ravishankar
// 1998), so that each tick has its favourite, and each peer as many of them, also where there are few jobs.
func rank(job string, tick time.Time, self string, peers []string) int {
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

// identity is this replica's among its peers; "" without any.
func (c *Config) identity() string {
	if c.Peers == nil {
		return ""
	}
	self, _ := c.Peers(nil)
	return self
}

// missed returns the reason of a job's tick that was missed. A replica without the job's labels tells apart whether other replicas with them are alive.
func (c *Config) missed(t *task, reason agenda.Reason) agenda.Reason {
	if reason == agenda.Down && t.Elsewhere && c.Peers != nil {
		if _, fit := c.Peers(t.Where); len(fit) == 0 {
			return agenda.Labels
		}
	}
	return reason
}

// turn is how long this replica lets others ask first for a tick of a job; as many as the tick has grants ask at once.
func (c *Config) turn(t *task, tick time.Time) time.Duration {
	if c.Peers == nil {
		return 0
	}
	self, all := c.Peers(t.Where)
	place := max(rank(t.Name, tick, self, all)-(t.PerTick-1), 0)
	group := time.Duration(xxhash.Sum64String(t.Name) % groups)
	if place > 0 {
		group = groups - group
	}
	return min(time.Duration(place)*rankStep, maxRankDelay) + group*time.Nanosecond
}
