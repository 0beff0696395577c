package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
)

// A notifier receives the grants that Redis publishes for the waiters of a client, and passes them to the waiters. It has one subscription for all
// locks, but in a Cluster one for each lock, on the node that has the lock. Messages may be lost, so waiters also poll.
type notifier struct {
	sender     *sender
	subscriber subscriber
	name       string // the part of the channel names that identifies this client

	mu      sync.Mutex
	lines   map[string]*line         // by channel
	waiting map[string]chan rowGrant // by lease id of a waiter
	plain   bool                     // the Cluster is older than Redis 7 and has no sharded channels: the client uses one channel for all locks
}

// A rowGrant is the message that announces the grant of a slot to a waiter. Any client may have called the script that made the grant.
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

// A line is one subscription of a notifier.
type line struct {
	channel     channel
	waiters     int
	up          chan struct{} // a closed channel while the line is subscribed, otherwise an open one
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

// awaitGrant returns a channel that receives the grant of a lease id. The waiter must call stopAwaiting when it stops waiting.
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

// missedSignal returns a channel that is closed when the subscription of ch ends and messages are missed; nil if ch is not subscribed.
func (n *notifier) missedSignal(ch channel) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.lines[ch.name]; l != nil && isClosed(l.up) {
		return l.down
	}
	return nil
}

// joinLine adds a waiter to the line of a channel, and subscribes to a channel without a line. The waiter calls leave when it stops waiting.
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

// goPlain makes later waiters use one plain channel. Current waiters get their grants by polling.
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

func (n *notifier) notifyWaiter(message string) {
	g, ok := parseGrant(message)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case n.waiting[g.id] <- g:
	default: // no waiter has this lease id, or the waiter has its grant already
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

// A channel is a Redis channel. A sharded channel exists only on the Cluster node that has the channel's slot.
type channel struct {
	name    string
	sharded bool
}

// A listener has the callbacks for a channel, which are called from one goroutine. up and down may be nil. Only sharded channels need unknown.
type listener struct {
	up      func() // called when the channel is subscribed: messages that are published later arrive
	down    func() // called when the subscription ends: messages may be missed
	receive func(message string)

	unknown func() // called if Redis does not support sharded channels; the subscription then ends
}

type subscriber struct {
	redis       Client
	timeout     time.Duration
	onForbidden func(channel string, err error)
}

// quiet is the time without messages after which a subscription is checked with a ping.
const quiet = 15 * time.Second

// subscribeTo receives the messages of a channel until ctx ends. While Redis is unreachable or forbids the subscription (see [Config.OnForbidden]),
// it retries with growing pauses.
func (s subscriber) subscribeTo(ctx context.Context, ch channel, l listener) {
	reported := false // onForbidden was called since the last success
	for retry := backoff.New(50*time.Millisecond, 2*time.Second); ctx.Err() == nil; retry.Wait(ctx) {
		received, err := s.listenOnce(ctx, ch, l)
		if received {
			reported = false
			retry.Reset()
		}
		if redis.IsPermissionError(err) && !reported {
			reported = true
			s.onForbidden(ch.name, err)
		}
		if ch.sharded && redis.HasErrorPrefix(err, "unknown command") {
			l.unknown()
			return
		}
	}
}

// listenOnce subscribes once, and returns the error that ended the subscription. received reports whether Redis confirmed the subscription.
func (s subscriber) listenOnce(ctx context.Context, ch channel, l listener) (received bool, err error) {
	sub, err := s.openSubscription(ctx, ch)
	if err != nil {
		return false, err
	}
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { sub.Close() })() // without this, a read would continue after the end of ctx
	for asked := false; ; {
		m, err := receiveNext(sub)
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout() && !asked:
			if err := pingServer(sub); err != nil {
				return received, err
			}
			asked = true
			continue
		case err != nil:
			return received, err
		}
		received, asked = true, false
		switch m := m.(type) {
		case *redis.Message:
			l.receive(m.Payload)
		case *redis.Subscription:
			if m.Kind == "sunsubscribe" { // the slot of the channel has moved to another node
				return received, nil
			}
			if l.up != nil {
				l.up()
				defer l.down()
			}
		}
	}
}

func receiveNext(sub *redis.PubSub) (m any, err error) {
	defer Shield(&err)
	return sub.ReceiveTimeout(noRedial, quiet) //nolint:wrapcheck // the error only ends the subscription
}

func pingServer(sub *redis.PubSub) (err error) {
	defer Shield(&err)
	return sub.Ping(noRedial) //nolint:wrapcheck // the error only ends the subscription
}

// openSubscription sends the command to subscribe. It does not wait for the confirmation.
func (s subscriber) openSubscription(ctx context.Context, ch channel) (_ *redis.PubSub, err error) {
	defer Shield(&err)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if ch.sharded {
		sub := s.redis.SSubscribe(ctx)
		return sub, closeUnless(sub, sub.SSubscribe(ctx, ch.name))
	}
	sub := s.redis.Subscribe(ctx)
	return sub, closeUnless(sub, sub.Subscribe(ctx, ch.name))
}

func closeUnless(sub *redis.PubSub, err error) error {
	if err != nil {
		_ = sub.Close()
	}
	return err
}

// noRedial is a canceled context. Reads ignore the cancellation, but go-redis does not reconnect with this context. Otherwise it would reconnect
// without pauses, and the subscription could not be closed during that time.
var noRedial = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
