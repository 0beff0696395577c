// Package backoff computes growing pauses between attempts, with jitter, so that replicas that failed at the same time do not retry at the same time.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Backoff computes the pauses between attempts. Each pause is twice as long as the one before, up to a maximum. A random part of up to half is subtracted.
// A Backoff is not safe for concurrent use.
type Backoff struct{ first, most, pause time.Duration }

// New returns a Backoff whose pauses grow from first to most. Both must be greater than 0.
func New(first, most time.Duration) *Backoff { return &Backoff{first: first, most: most} }

// Next returns the next pause, without waiting.
func (b *Backoff) Next() time.Duration {
	b.pause = min(max(2*b.pause, b.first), b.most)
	return b.pause - rand.N(b.pause/2+1)
}

// Last returns the last pause before the random part was subtracted. It returns 0 before the first pause.
func (b *Backoff) Last() time.Duration { return b.pause }

// Reset makes the pauses grow from the shortest one again. Call it after a success.
func (b *Backoff) Reset() { b.pause = 0 }

// Wait waits for the next pause. It returns false if ctx ends first.
func (b *Backoff) Wait(ctx context.Context) bool { return Sleep(ctx, b.Next()) }

// Sleep waits for the duration d. It returns false if ctx ends first.
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
