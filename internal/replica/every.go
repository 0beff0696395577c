package replica

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
)

// every calls f at once, and then again and again until ctx ends.
func every(ctx context.Context, period time.Duration, f func()) {
	for ; ctx.Err() == nil; backoff.Sleep(ctx, period) {
		f()
	}
}

// notice is a channel of capacity 1, on which a goroutine waits. Notices that come before it has taken the last one are one.
type notice chan struct{}

func (n notice) give() {
	select {
	case n <- struct{}{}:
	default:
	}
}
