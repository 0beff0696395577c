package redis

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// A channel is a Redis channel. A sharded channel is only on the Cluster node that has the channel's slot.
type channel struct {
	name    string
	sharded bool
}

// A listener has the callbacks for a channel, which are called from one goroutine. up and down may both be nil. unknown is needed only for a sharded
// channel.
type listener struct {
	up      func() // called when the channel is subscribed: messages published from now on arrive
	down    func() // called when the subscription ends: messages may be missed
	receive func(message string)

	unknown func() // called if Redis does not support sharded channels; the subscription then ends
}

// A subscriber subscribes to channels.
type subscriber struct {
	redis       transport.Client
	timeout     time.Duration
	onForbidden func(channel string, err error)
}

// quiet is the time without messages after which a subscription is checked with a ping.
const quiet = 15 * time.Second

// subscribeTo listens to a channel until ctx ends. While Redis is unreachable or forbids the subscription (see [Config.OnForbidden]), it retries with
// growing pauses.
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
	defer context.AfterFunc(ctx, func() { sub.Close() })() // a read does not end when its context ends
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
	defer transport.Shield(&err)
	return sub.ReceiveTimeout(noRedial, quiet) //nolint:wrapcheck // a subscription's end
}

func pingServer(sub *redis.PubSub) (err error) {
	defer transport.Shield(&err)
	return sub.Ping(noRedial) //nolint:wrapcheck // a subscription's end
}

// openSubscription subscribes without waiting for the confirmation.
func (s subscriber) openSubscription(ctx context.Context, ch channel) (_ *redis.PubSub, err error) {
	defer transport.Shield(&err)
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

// noRedial is a canceled context. Reads ignore the cancellation, but it keeps go-redis from reconnecting by itself. go-redis would reconnect without
// pauses, and nobody could close the subscription meanwhile.
var noRedial = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
