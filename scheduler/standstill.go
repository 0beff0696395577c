package scheduler

import "time"

const (
	// standstill is the length of a pause of this process from which on late claims and unread answers are blamed on the pause instead of Redis. A
	// process pauses if it is stopped or gets no CPU time.
	standstill = 250 * time.Millisecond
	// measureEvery is the interval at which a standstillMeter wakes up.
	measureEvery = 50 * time.Millisecond
)

// A standstillMeter measures the longest pause of this process, from measureStandstill until end.
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

// end ends the measurement and returns the longest pause.
func (p standstillMeter) end() time.Duration {
	close(p.over)
	return <-p.longest
}
