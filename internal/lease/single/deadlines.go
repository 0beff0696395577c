package single

import (
	"context"
	"sync"
	"time"
)

// A deadlines bounds calls by the timeout of a round trip. Calls that cannot be canceled share a timer with others of about the same time, and may
// end a sixteenth of the timeout early. A timer for each call would be a fiftieth of the cost of an uncontended call. The zero value is ready.
type deadlines struct {
	mu     sync.Mutex
	shared context.Context
	end    context.CancelFunc // the cancel function of shared; it is never called, because calls may be under way with shared
	renew  time.Time          // from then on, too little of shared is left
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

// A sharing is a context that ends with others, and has the values of its own.
type sharing struct {
	context.Context
	own context.Context
}

func (s sharing) Value(key any) any { return s.own.Value(key) }
