package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// ShortestPause is the shortest pause of a call that waits by asking again.
const ShortestPause = 10 * time.Millisecond

// RetryAfter is a random time about a pause, or less if the lease that is in the way runs out before. The server's clock is now; either instant is
// zero where it is not known.
func RetryAfter(pause time.Duration, runsOut, now time.Time) time.Duration {
	wait := pause/2 + rand.N(pause)
	if now.IsZero() || runsOut.IsZero() {
		return wait
	}
	return min(wait, max(runsOut.Sub(now), 0)+ShortestPause/2+rand.N(ShortestPause))
}

// WaitError is the error of a wait that has ended with its context; fault is why nothing was known at last, if that is so.
func WaitError(ctx context.Context, fault error) error {
	if fault != nil {
		return fmt.Errorf("%w (%w)", fault, context.Cause(ctx))
	}
	return context.Cause(ctx)
}
