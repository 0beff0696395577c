package replica

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
)

// repeatEvery calls f at once, and then again after each period until ctx ends.
func repeatEvery(ctx context.Context, period time.Duration, f func()) {
	for ; ctx.Err() == nil; backoff.Sleep(ctx, period) {
		f()
	}
}

// A notice wakes a goroutine. It is a channel of capacity 1, so all notices that arrive before the goroutine wakes count as one.
type notice chan struct{}

func (n notice) give() {
	select {
	case n <- struct{}{}:
	default:
	}
}
