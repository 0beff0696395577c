package scheduler

// Retries: a run that failed or timed out is repeated on the same replica. Each execution is called a try.
//
// All tries of a run have the same lease, token and slot. Try n+1 begins after a pause of Delay*2^(n-1), at most MaxDelay, reduced by a random part
// of up to half. Tries and recoveries share one attempt counter.

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Retry repeats a run that failed or timed out, on the same replica, with the same lease and token. Each try has the whole Timeout. The zero value
// means no retry.
type Retry struct {
	// Max is the maximum number of tries after the first; at most 100. Attempts of [Recover] count, too.
	Max int
	// Delay is the pause before the second try. The pause doubles with each try, up to MaxDelay. A random part of up to half is subtracted, so that runs
	// that failed at the same time are not all retried at the same time. Delay defaults to 5s, or to MaxDelay if that is less. MaxDelay defaults to 5m,
	// or to Delay if that is more.
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

// pauseBefore returns the pause after the try with this number, from 1.
func (r Retry) pauseBefore(number int) time.Duration {
	d := r.Delay
	for ; number > 1 && d < r.MaxDelay; number-- {
		d *= 2
	}
	d = min(d, r.MaxDelay)
	return d - rand.N(d/2+1)
}
