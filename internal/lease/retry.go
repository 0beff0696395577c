package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
)

// ShortestPause is the shortest pause of a call that waits by asking again.
const ShortestPause = 10 * time.Millisecond

// NewRetry returns the pauses between requests whose outcome is unknown; timeout is that of a round trip.
func NewRetry(timeout time.Duration) *backoff.Backoff {
	return backoff.New(5*time.Millisecond, timeout)
}

// RetryAfter is a pause, or less if the lease that is in the way runs out before. The server's clock is now; either instant is zero where it is not known.
func RetryAfter(pause time.Duration, runsOut, now time.Time) time.Duration {
	if now.IsZero() || runsOut.IsZero() {
		return pause
	}
	return min(pause, max(runsOut.Sub(now), 0)+ShortestPause/2+rand.N(ShortestPause))
}

// WaitError is the error of a wait that has ended with its context; fault is why nothing was known at last, if that is so.
func WaitError(ctx context.Context, fault error) error {
	if fault != nil {
		return fmt.Errorf("%w (%w)", fault, context.Cause(ctx))
	}
	return context.Cause(ctx)
}
