package redis

import (
	"context"
	"sync"
	"time"
)

// A deadlines bounds calls by the timeout of a round trip. Calls whose context can't be canceled share a timer if they begin at about the same time,
// so they may time out early by a sixteenth of the timeout. A timer for each call would be 2 % of the cost of an uncontended call. The zero value is
// ready for use.
type deadlines struct {
	mu     sync.Mutex
	shared context.Context
	end    context.CancelFunc // the cancel function of shared; never called, because calls may still use shared
	renew  time.Time          // when shared must be replaced, because too little of its time is left
}

// boundContext derives a context that ends within the timeout.
func (d *deadlines) boundContext(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded || ctx.Done() != nil {
		return context.WithTimeout(ctx, timeout)
	}
	return sharing{d.sharedContext(timeout), ctx}, func() {}
}

func (d *deadlines) sharedContext(timeout time.Duration) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); d.shared == nil || !now.Before(d.renew) {
		d.shared, d.end = context.WithTimeout(context.Background(), timeout)
		d.renew = now.Add(timeout / 16)
	}
	return d.shared
}

// A sharing is a context with the deadline of a shared context and the values of the caller's context.
type sharing struct {
	context.Context
	own context.Context
}

func (s sharing) Value(key any) any { return s.own.Value(key) }
