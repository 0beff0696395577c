package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/backoff"
)

const (
	// lookForRequests is how often Hear looks by itself: a message may get lost, and an ACL may forbid the channel.
	lookForRequests = 3 * time.Second
	// redial is the pause before a subscription that has ended is tried again.
	redial = 2 * time.Second
	// quiet is the silence after which a subscription is made anew: a dead connection gives no other sign.
	quiet = 30 * time.Second
)

// Subscribe calls f with the requests that wait, from one goroutine, whenever one is published and from time to time, until ctx ends. The same
// request is heard again until it was answered or has expired.
func (l requestList) Subscribe(ctx context.Context, f func([]Request)) {
	arrived := make(chan struct{}, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.subscribe(ctx, arrived)
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

// subscribe passes on messages until ctx ends.
func (l requestList) subscribe(ctx context.Context, told chan<- struct{}) {
	for ; ctx.Err() == nil; backoff.Sleep(ctx, redial) {
		l.listen(ctx, told)
	}
}

// receive reads a message. Where the client panics there was no message: its connection is given up.
func receive(ctx context.Context, sub *redis.PubSub) (m any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("read a message: %w: %v", ErrCorrupt, p)
		}
	}()
	return sub.ReceiveTimeout(ctx, quiet) //nolint:wrapcheck // a subscription's end
}

// listen subscribes once, and returns when that has ended.
func (l requestList) listen(ctx context.Context, told chan<- struct{}) {
	sub := l.redis.Subscribe(ctx)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })() // no context ends a read
	first, cancel := l.within(ctx)
	err := sub.Subscribe(first, l.key("asked"))
	cancel()
	ended, end := context.WithCancel(ctx)
	end() // so that go-redis does not connect again by itself
	for err == nil {
		var m any
		if m, err = receive(ended, sub); err != nil {
			return
		}
		if _, ok := m.(*redis.Message); !ok {
			continue
		}
		select {
		case told <- struct{}{}:
		default: // that is known
		}
	}
}
