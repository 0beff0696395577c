package scheduler

import "time"

const (
	// standstill is a limit: a longer pause of this process, because it was stopped or had no CPU time, is blamed for late claims and unread answers,
	// instead of Redis.
	standstill = 250 * time.Millisecond
	// pulseEvery is the interval at which a pulse wakes up.
	measureEvery = 50 * time.Millisecond
)

// A pulse measures the longest time for which this process did not run while something was under way.
type standstillMeter struct {
	over    chan struct{}
	longest chan time.Duration
}

func measureStandstill() standstillMeter {
	p := standstillMeter{over: make(chan struct{}), longest: make(chan time.Duration, 1)}
	go p.measure()
	return p
}

func (p standstillMeter) measure() {
	ticker := time.NewTicker(measureEvery)
	defer ticker.Stop()
	longest := time.Duration(0)
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-ticker.C:
			longest = max(longest, time.Since(last)-measureEvery)
		case <-p.over:
			p.longest <- max(longest, time.Since(last)-measureEvery)
			return
		}
	}
}

// end returns the longest time for which this process did not run.
func (p standstillMeter) end() time.Duration {
	close(p.over)
	return <-p.longest
}
