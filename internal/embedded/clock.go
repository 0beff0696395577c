package embedded

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// A clock sets the time of miniredis once per command of a client. Everything in the command then happens at one instant, as in Redis: no key expires
// between two calls of a script. It also saves miniredis a walk over all keys for each call in a script.
type clock struct {
	redis *miniredis.Miniredis

	setting sync.Mutex // held while waiting for the lock of redis
	last    time.Time

	// known must not be held while waiting for the lock of redis, because calls from scripts lock known while they hold that lock.
	known   sync.Mutex
	clients map[*server.Peer]struct{} // peers that are connections of clients
}

func newClock(m *miniredis.Miniredis) *clock {
	return &clock{redis: m, clients: map[*server.Peer]struct{}{}}
}

// beforeCommand is the hook that miniredis calls before each command, including calls from scripts. It returns false, so that miniredis executes the
// command.
func (c *clock) beforeCommand(p *server.Peer, _ string, _ ...string) bool {
	if c.isClient(p) { // a call from a script must not change the time
		c.setNow()
	}
	return false
}

// setNow advances the time of redis to now. It never sets the time back, because miniredis would then subtract the same time from all TTLs twice.
func (c *clock) setNow() {
	c.setting.Lock()
	defer c.setting.Unlock()
	if now := time.Now(); now.After(c.last) {
		c.last = now
		c.redis.SetTime(now)
	}
}

// isClient reports whether a peer is the connection of a client. miniredis also creates a peer for each call from a script, which has a context from
// the start. The peer of a client has no context before its first command.
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
