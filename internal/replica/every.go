package replica

import (
	"context"
	"time"
)

// every calls f at once, and then again and again until ctx ends.
func every(ctx context.Context, period time.Duration, f func()) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			f()
			timer.Reset(period)
		}
	}
}
