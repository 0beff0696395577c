package scheduler

// Retries: a run that failed or timed out is tried again on the same replica.
//
// All tries have the same lease, token and slot. Try n+1 begins after a pause of Delay*2^(n-1), at most MaxDelay, less a random part of up to half.
// Recoveries and retries share one counter of attempts.

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Retry repeats a run that failed, or took longer than its timeout, on the same replica, under the same lease and with the same token. Each try has
// its own timeout. The zero value is no retry.
type Retry struct {
	// Max is the maximum number of further tries; at most 100. Attempts of [Recover] count, too.
	Max int
	// Delay is the pause before the second try. It doubles with each try up to MaxDelay. A random part of up to half is subtracted, so that runs that
	// failed together are not tried again together. They default to 5s (or MaxDelay, if that is less) and 5m.
	Delay, MaxDelay time.Duration
}

func (r Retry) withDefaults() Retry {
	if r.Max == 0 {
		return Retry{}
	}
	if r.Delay == 0 {
		r.Delay = min(5*time.Second, orDefault(r.MaxDelay, 5*time.Second))
	}
	r.MaxDelay = orDefault(r.MaxDelay, max(5*time.Minute, r.Delay))
	return r
}

func (r Retry) findFault() string {
	switch {
	case r.Max < 0 || r.Max > 100:
		return fmt.Sprintf("Retry.Max is %d: it must be from 0 to 100", r.Max)
	case r.Delay < 0 || r.MaxDelay < r.Delay:
		return fmt.Sprintf("Retry.MaxDelay is %v: it must not be less than Delay, %v, nor that negative", r.MaxDelay, r.Delay)
	}
	return ""
}

// pauseBefore returns the pause before a try. Number 1 is the pause before the second try.
func (r Retry) pauseBefore(number int) time.Duration {
	d := r.Delay
	for ; number > 1 && d < r.MaxDelay; number-- {
		d *= 2
	}
	d = min(d, r.MaxDelay)
	return d - rand.N(d/2+1)
}
