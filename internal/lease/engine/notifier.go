package engine

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// bell notifies a client's waiters of rows that the server granted them: one subscription for all of them, but
// in a Cluster one for each lock, on the node that has it. A message is a hint, since messages get lost: waiters
// ask, too.
type bell struct {
	client *single
	name   string // of this client's channels

	mu    sync.Mutex
	lines map[string]*line      // by channel
	rings map[string]chan grant // by lease id of a waiter
	plain bool                  // the Cluster is older than sharded channels (Redis 7): one channel of all nodes, as without a Cluster
}

// grant is the server's message that another client's script has given a row to a waiter.
type grant struct {
	id                                string
	slot, token, expiry, now, longest int64
}

func parseGrant(message string) (g grant, ok bool) {
	g.id, message, ok = strings.Cut(message, " ")
	for _, number := range []*int64{&g.slot, &g.token, &g.expiry, &g.now, &g.longest} {
		var word string
		word, message, _ = strings.Cut(message, " ")
		n, err := strconv.ParseInt(word, 10, 64)
		*number, ok = n, ok && err == nil
	}
	return g, ok && message == "" && g.sound()
}

func (g grant) sound() bool {
	r := row{slot: g.slot, token: g.token, expiry: g.expiry}
	return lease.Sound(g.now, lease.MaxNumber) && r.fault(g.now) == "" && lease.Sound(g.longest, MaxLease.Microseconds())
}

// line is one subscription.
type line struct {
	channel channel
	waiters int
	up      chan struct{} // closed while it is subscribed
	down    chan struct{} // closed when it is no more
	hangUp  context.CancelFunc
	idle    *time.Timer // runs while the line has no waiters
}

// linger is how long a subscription without waiters is kept: not for long, since in a Cluster each lock has a
// connection.
const linger = 5 * time.Second

func newNotifier(c *single) *bell {
	return &bell{client: c, name: "bell:" + rand.Text(), lines: map[string]*line{}, rings: map[string]chan grant{}}
}

// channel is where grants of a lock are told to this client.
func (b *bell) channel(lock string) channel {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client.servers.cluster == nil || b.plain {
		return channel{name: b.client.cfg.Prefix + b.name}
	}
	return channel{name: b.client.key(lock) + ":" + b.name, sharded: true}
}

// wire is the channel as the scripts have it.
func (c channel) wire() string {
	if c.sharded {
		return "s:" + c.name
	}
	return ":" + c.name
}

// await has a lease id called. Its waiter must leave.
func (b *bell) await(id string) <-chan grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	ring := make(chan grant, 1)
	b.rings[id] = ring
	return ring
}

func (b *bell) leave(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.rings, id)
}

// deaf is closed once a channel that is heard now has been missed for a moment; nil if it is not heard.
func (b *bell) deaf(ch channel) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lines[ch.name]; l != nil && isClosed(l.up) {
		return l.down
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// join adds a waiter to the line, and subscribes if it is the first.
func (b *bell) join(ch channel) (l *line, leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l = b.lines[ch.name]
	if l == nil {
		l = &line{channel: ch, up: make(chan struct{})}
		ctx, cancel := context.WithCancel(b.client.work.Life())
		l.hangUp = cancel
		b.lines[ch.name] = l
		if !b.client.work.Go(func() { b.client.subscribe(ctx, ch, b.listener(l)) }) {
			cancel()
		}
	}
	if l.idle != nil {
		l.idle.Stop()
	}
	l.waiters++
	return l, func() { b.part(l) }
}

func (b *bell) listener(l *line) listener {
	return listener{
		up: func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			l.down = make(chan struct{})
			close(l.up)
		},
		down: func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			l.up = make(chan struct{})
			close(l.down)
		},
		hear:    b.ring,
		unknown: b.goPlain,
	}
}

// goPlain is for waiters that come from now on. Those that wait already find out by asking.
func (b *bell) goPlain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.plain = true
}

// subscribed is closed while the line is heard.
func (b *bell) subscribed(l *line) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return l.up
}

func (b *bell) part(l *line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.waiters--; l.waiters > 0 {
		return
	}
	l.idle = time.AfterFunc(linger, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if l.waiters == 0 && b.lines[l.channel.name] == l {
			delete(b.lines, l.channel.name)
			l.hangUp()
		}
	})
}

// ring hands the grant to its waiter.
func (b *bell) ring(message string) {
	g, ok := parseGrant(message)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.rings[g.id] <- g:
	default: // it waits no more, or was told before
	}
}
