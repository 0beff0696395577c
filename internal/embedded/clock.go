package embedded

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// A clock sets the time of miniredis once per command of a client. Everything that the command does then happens at one instant, as in Redis: a key does not
// expire between two calls of one script. It also spares miniredis a walk over all keys for each call of a script.
type clock struct {
	redis *miniredis.Miniredis

	setting sync.Mutex // held while waiting for the lock of redis
	last    time.Time

	// known is never held while waiting for the lock of redis, because calls from scripts take known under that lock.
	known   sync.Mutex
	clients map[*server.Peer]struct{} // peers that are connections, not calls from scripts
}

func newClock(m *miniredis.Miniredis) *clock {
	return &clock{redis: m, clients: map[*server.Peer]struct{}{}}
}

// beforeCommand is the hook that miniredis calls before each command, calls from scripts included. It returns false, so that the command is executed.
func (c *clock) beforeCommand(p *server.Peer, _ string, _ ...string) bool {
	if c.isClient(p) { // during a script redis is locked and its time is fixed
		c.setNow()
	}
	return false
}

// setNow advances the time of redis to now. It never goes back, because miniredis would subtract the same step from all TTLs again.
func (c *clock) setNow() {
	c.setting.Lock()
	defer c.setting.Unlock()
	if now := time.Now(); now.After(c.last) {
		c.last = now
		c.redis.SetTime(now)
	}
}

// isClient reports whether a peer is the connection of a client, not the peer that miniredis creates for each call from a script. A peer of a script has a
// context from the start, the peer of a client only from its first command on.
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
