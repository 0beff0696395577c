package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/backoff"
)

const (
	// lookForRequests is the interval at which Subscribe reads the requests even without a message. Messages can get lost, and an ACL can forbid the channel.
	lookForRequests = 3 * time.Second
	// redial is the pause between the end of a subscription and the next one.
	redial = 2 * time.Second
	// quiet is the time without a message after which a subscription is renewed, because a dead connection gives no other sign.
	quiet = 30 * time.Second
)

// Subscribe calls f with all waiting requests whenever a request is published, and also periodically, until ctx ends. All calls come from one goroutine. f
// receives the same request repeatedly until it is answered or has expired.
func (l requestList) Subscribe(ctx context.Context, f func([]Request)) {
	arrived := make(chan struct{}, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.keepSubscribed(ctx, arrived)
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-arrived:
		case <-timer.C:
		}
		if requests, err := l.Requests(ctx); err == nil && len(requests) > 0 && ctx.Err() == nil {
			f(requests)
		}
		timer.Reset(lookForRequests)
	}
	<-over
}

// keepSubscribed subscribes anew whenever a subscription ends, until ctx ends.
func (l requestList) keepSubscribed(ctx context.Context, told chan<- struct{}) {
	for ; ctx.Err() == nil; backoff.Sleep(ctx, redial) {
		l.listenOnce(ctx, told)
	}
}

// receiveMessage returns the next message. If the Redis client panics, receiveMessage returns an error, and the caller must close the subscription.
func receiveMessage(ctx context.Context, sub *redis.PubSub) (m any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("read a message: %w: %v", ErrCorrupt, p)
		}
	}()
	return sub.ReceiveTimeout(ctx, quiet) //nolint:wrapcheck // a subscription's end
}

// listenOnce subscribes once, and returns when the subscription has ended.
func (l requestList) listenOnce(ctx context.Context, told chan<- struct{}) {
	sub := l.redis.Subscribe(ctx)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })() // the end of ctx does not end a read of go-redis
	first, cancel := l.withTimeout(ctx)
	err := sub.Subscribe(first, l.key("asked"))
	cancel()
	ended, end := context.WithCancel(ctx)
	end() // so that go-redis does not reconnect by itself
	for err == nil {
		var m any
		if m, err = receiveMessage(ended, sub); err != nil {
			return
		}
		if _, ok := m.(*redis.Message); !ok {
			continue
		}
		select {
		case told <- struct{}{}:
		default: // a notice is already pending
		}
	}
}
