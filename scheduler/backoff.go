package scheduler

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff grows the pause between tries, with jitter, from 50ms to 2s.
type backoff struct{ pause time.Duration }

const (
	shortestPause = 50 * time.Millisecond
	longestPause  = 2 * time.Second
)

func (b *backoff) next() time.Duration {
	b.pause = min(max(2*b.pause, shortestPause), longestPause)
	return b.pause/2 + rand.N(b.pause/2)
}

func (b *backoff) reset() { b.pause = 0 }

// wait pauses; it is false if ctx ended first.
func (b *backoff) wait(ctx context.Context) bool {
	timer := time.NewTimer(b.next())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
