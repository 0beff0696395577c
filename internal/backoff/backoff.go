// Package backoff computes growing pauses between tries, with jitter, so that replicas that failed together do not try again together.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Backoff computes the pauses between tries. Each pause is twice as long as the one before, up to a maximum, less a random part of up to half. It
// belongs to one goroutine.
type Backoff struct{ first, most, pause time.Duration }

// New returns a backoff with pauses that grow from first to most. Both must be greater than 0.
func New(first, most time.Duration) *Backoff { return &Backoff{first: first, most: most} }

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	b.pause = min(max(2*b.pause, b.first), b.most)
	return b.pause - rand.N(b.pause/2+1)
}

// Last returns the last pause without its random part; 0 before the first one.
func (b *Backoff) Last() time.Duration { return b.pause }

// Reset starts again with the first pause, after a success.
func (b *Backoff) Reset() { b.pause = 0 }

// Wait waits for the next pause. It returns false if ctx ended first.
func (b *Backoff) Wait(ctx context.Context) bool { return Sleep(ctx, b.Next()) }

// Sleep waits for a time. It returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
