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

// NewRetry returns the backoff for requests whose outcome is unknown. timeout is the timeout of a round trip.
func NewRetry(timeout time.Duration) *backoff.Backoff {
	return backoff.New(5*time.Millisecond, timeout)
}

// RetryAfter returns pause, or less if the lease that is in the way runs out before. now is the server's clock. Either instant is zero if it is not
// known.
func RetryAfter(pause time.Duration, runsOut, now time.Time) time.Duration {
	if now.IsZero() || runsOut.IsZero() {
		return pause
	}
	return min(pause, max(runsOut.Sub(now), 0)+ShortestPause/2+rand.N(ShortestPause))
}

// WaitError returns the error of a wait that has ended with its context. fault, if not nil, is the last error, after which nothing was known.
func WaitError(ctx context.Context, fault error) error {
	if fault != nil {
		return fmt.Errorf("%w (%w)", fault, context.Cause(ctx))
	}
	return context.Cause(ctx)
}
