package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
)

// ShortestPause is the shortest pause between two requests of a call that polls.
const ShortestPause = 10 * time.Millisecond

// NewRetry returns the backoff for requests whose outcome is unknown. timeout is the timeout of a round trip.
func NewRetry(timeout time.Duration) *backoff.Backoff {
	return backoff.New(5*time.Millisecond, timeout)
}

// RetryAfter returns the time until the next request: pause, or less if the blocking lease ends earlier, at runsOut. now is Redis's clock. Either
// instant is zero if it is unknown.
func RetryAfter(pause time.Duration, runsOut, now time.Time) time.Duration {
	if now.IsZero() || runsOut.IsZero() {
		return pause
	}
	return min(pause, max(runsOut.Sub(now), 0)+ShortestPause/2+rand.N(ShortestPause))
}

// WaitError returns the error of a wait that ended because its context ended. fault, if not nil, is the error of the last request.
func WaitError(ctx context.Context, fault error) error {
	if fault != nil {
		return fmt.Errorf("%w (%w)", fault, context.Cause(ctx))
	}
	return context.Cause(ctx)
}
