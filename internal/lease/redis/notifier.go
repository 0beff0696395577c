package redis

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A notifier tells a client's waiters about rows that were granted to them. It has one subscription for all locks. In a Cluster it has one for each
// lock, on the node that has the lock. Messages may be lost, so waiters also poll.
type notifier struct {
	sender     *sender
	subscriber subscriber
	name       string // the name of this client's channels

	mu      sync.Mutex
	lines   map[string]*line         // by channel
	waiting map[string]chan rowGrant // by lease id of a waiter
	plain   bool                     // the Cluster is older than Redis 7 and has no sharded channels: use one channel, as without a Cluster
}

// A rowGrant is a message that a script called by another client has granted a row to a waiter.
type rowGrant struct {
	id                                string
	slot, token, expiry, now, longest int64
}

func parseGrant(message string) (g rowGrant, ok bool) {
	g.id, message, ok = strings.Cut(message, " ")
	for _, number := range []*int64{&g.slot, &g.token, &g.expiry, &g.now, &g.longest} {
		var word string
		word, message, _ = strings.Cut(message, " ")
		n, err := strconv.ParseInt(word, 10, 64)
		*number, ok = n, ok && err == nil
	}
	return g, ok && message == "" && g.isSound()
}

func (g rowGrant) isSound() bool {
	r := row{slot: g.slot, token: g.token, expiry: g.expiry}
	return lease.Sound(g.now, lease.MaxNumber) && r.findFault(g.now) == "" && lease.Sound(g.longest, lease.MaxLease.Microseconds())
}

// A line is one subscription.
type line struct {
	channel     channel
	waiters     int
	up          chan struct{} // closed while the line is subscribed
	down        chan struct{} // closed when the subscription ends
	unsubscribe context.CancelFunc
	idle        *time.Timer // runs while the line has no waiters
}

// linger is the time for which a subscription without waiters is kept. It is short, because in a Cluster each subscription has its own connection.
const linger = 5 * time.Second

func newNotifier(c *sender, s subscriber) *notifier {
	return &notifier{sender: c, subscriber: s, name: "bell:" + rand.Text(), lines: map[string]*line{}, waiting: map[string]chan rowGrant{}}
}

// channelFor returns the channel to which grants of a lock are published for this client.
func (n *notifier) channelFor(lock string) channel {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sender.servers.cluster == nil || n.plain {
		return channel{name: n.sender.cfg.Prefix + n.name}
	}
	return channel{name: n.sender.key(lock) + ":" + n.name, sharded: true}
}

// wireName encodes the channel for the scripts.
func (c channel) wireName() string {
	if c.sharded {
		return "s:" + c.name
	}
	return ":" + c.name
}

// awaitGrant returns a channel that receives the grant of a lease id. The waiter must call stopAwaiting at the end.
func (n *notifier) awaitGrant(id string) <-chan rowGrant {
	n.mu.Lock()
	defer n.mu.Unlock()
	notified := make(chan rowGrant, 1)
	n.waiting[id] = notified
	return notified
}

func (n *notifier) stopAwaiting(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.waiting, id)
}

// missedSignal returns a channel that is closed once messages of a subscribed channel may have been missed; nil if ch is not subscribed.
func (n *notifier) missedSignal(ch channel) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.lines[ch.name]; l != nil && isClosed(l.up) {
		return l.down
	}
	return nil
}

// joinLine adds a waiter to the line of a channel. The first waiter makes it subscribe. The waiter calls leave at the end.
func (n *notifier) joinLine(ch channel) (l *line, leave func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l = n.lines[ch.name]
	if l == nil {
		l = &line{channel: ch, up: make(chan struct{})}
		ctx, cancel := context.WithCancel(n.sender.cfg.Work.Life())
		l.unsubscribe = cancel
		n.lines[ch.name] = l
		if !n.sender.cfg.Work.Go(func() { n.subscriber.subscribeTo(ctx, ch, n.listenerFor(l)) }) {
			cancel()
		}
	}
	if l.idle != nil {
		l.idle.Stop()
	}
	l.waiters++
	return l, func() { n.leaveLine(l) }
}

func (n *notifier) listenerFor(l *line) listener {
	return listener{
		up: func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			l.down = make(chan struct{})
			close(l.up)
		},
		down: func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			l.up = make(chan struct{})
			close(l.down)
		},
		receive: n.notifyWaiter,
		unknown: n.goPlain,
	}
}

// goPlain switches to one plain channel for later waiters. Current waiters get their grant by polling.
func (n *notifier) goPlain() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.plain = true
}

// upSignal returns a channel that is closed while the line is subscribed.
func (n *notifier) upSignal(l *line) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return l.up
}

func (n *notifier) leaveLine(l *line) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.waiters--; l.waiters > 0 {
		return
	}
	l.idle = time.AfterFunc(linger, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if l.waiters == 0 && n.lines[l.channel.name] == l {
			delete(n.lines, l.channel.name)
			l.unsubscribe()
		}
	})
}

// notifyWaiter passes the grant to its waiter.
func (n *notifier) notifyWaiter(message string) {
	g, ok := parseGrant(message)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case n.waiting[g.id] <- g:
	default: // the waiter has left, or has its grant already
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
