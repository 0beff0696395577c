package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/backoff"
)

const (
	// lookForRequests is the interval at which Subscribe checks for requests without a message, because messages may get lost, and an ACL may forbid the
	// channel.
	lookForRequests = 3 * time.Second
	// redial is the pause before a new subscription after one has ended.
	redial = 2 * time.Second
	// quiet is the silence after which a subscription is renewed, because a dead connection gives no other sign.
	quiet = 30 * time.Second
)

// Subscribe calls f with the waiting requests, from one goroutine, whenever one is published and periodically, until ctx ends. A request is passed again
// until it is answered or has expired.
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

// keepSubscribed keeps a subscription until ctx ends.
func (l requestList) keepSubscribed(ctx context.Context, told chan<- struct{}) {
	for ; ctx.Err() == nil; backoff.Sleep(ctx, redial) {
		l.listenOnce(ctx, told)
	}
}

// receiveMessage returns the next message. If the client panics, it returns an error, and the connection must be closed.
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
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })() // a context does not end a read
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
