package single

import (
	"context"
	"sync"
	"time"
)

// deadlines bounds calls by the time-out of a round trip. Calls that cannot be cancelled share a timer with
// others of about the same time, and may end a sixteenth of it early: a timer for each would be a fiftieth of
// the cost of an uncontended call. The zero value is ready.
type deadlines struct {
	mu     sync.Mutex
	shared context.Context
	end    context.CancelFunc // of shared; it is left to end by itself, since calls may be under way with it
	renew  time.Time          // from then on too little of shared is left
}

// bound derives a context that ends within the time-out.
func (d *deadlines) bound(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded || ctx.Done() != nil {
		return context.WithTimeout(ctx, timeout)
	}
	return sharing{d.current(timeout), ctx}, func() {}
}

func (d *deadlines) current(timeout time.Duration) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); d.shared == nil || !now.Before(d.renew) {
		d.shared, d.end = context.WithTimeout(context.Background(), timeout)
		d.renew = now.Add(timeout / 16)
	}
	return d.shared
}

// sharing ends with others, and has the values of one's own.
type sharing struct {
	context.Context
	own context.Context
}

func (s sharing) Value(key any) any { return s.own.Value(key) }
