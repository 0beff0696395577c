package embedded

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// clock gives miniredis the time once for each command that a client sends, so
// that all that the command does sees one instant, as in Redis: a key does not
// expire between two calls of a script. It also spares miniredis the walk over
// all keys that it would do for each call.
type clock struct {
	redis *miniredis.Miniredis

	setting sync.Mutex // held while waiting for redis' lock
	last    time.Time

	// known is never held while waiting for redis' lock, since a script's calls
	// take it under that lock.
	known   sync.Mutex
	clients map[*server.Peer]struct{} // peers that are connections, not scripts
}

func newClock(m *miniredis.Miniredis) *clock {
	return &clock{redis: m, clients: map[*server.Peer]struct{}{}}
}

// beforeCommand is called by miniredis before each command, those of scripts
// included. It returns false: the command is still to be done.
func (c *clock) beforeCommand(p *server.Peer, _ string, _ ...string) bool {
	if c.isClient(p) { // for a script's call redis is locked, and its time stands
		c.set()
	}
	return false
}

// set moves redis' time on to now. Never back: miniredis would take the step
// from all TTLs a second time.
func (c *clock) set() {
	c.setting.Lock()
	defer c.setting.Unlock()
	if now := time.Now(); now.After(c.last) {
		c.last = now
		c.redis.SetTime(now)
	}
}

// isClient returns whether a connection's peer is a client, and not the one that miniredis makes for each call of a script: the latter has its
// context from the start, the former gets it with its first command.
func (c *clock) isClient(p *server.Peer) bool {
	c.known.Lock()
	defer c.known.Unlock()
	if _, ok := c.clients[p]; ok {
		return true
	}
	if p.Ctx != nil {
		return false
	}
	c.clients[p] = struct{}{}
	p.OnDisconnect(func() {
		c.known.Lock()
		defer c.known.Unlock()
		delete(c.clients, p)
	})
	return true
}
