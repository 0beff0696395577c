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
