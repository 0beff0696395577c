package scheduler

import "time"

const (
	// standstill is how long this process must not have run to be the reason for ticks that were not claimed, or answers that were not taken in, in time: it is
	// starved of CPU time, or was stopped.
	standstill = 250 * time.Millisecond
	// pulseEvery is how often a pulse beats.
	pulseEvery = 50 * time.Millisecond
)

// pulse measures for how long this process did not run while something was under way.
type pulse struct {
	over    chan struct{}
	longest chan time.Duration
}

func startPulse() pulse {
	p := pulse{over: make(chan struct{}), longest: make(chan time.Duration, 1)}
	go p.beat()
	return p
}

func (p pulse) beat() {
	ticker := time.NewTicker(pulseEvery)
	defer ticker.Stop()
	longest := time.Duration(0)
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-ticker.C:
			longest = max(longest, time.Since(last)-pulseEvery)
		case <-p.over:
			p.longest <- max(longest, time.Since(last)-pulseEvery)
			return
		}
	}
}

// end returns the longest time in which this process did not run.
func (p pulse) end() time.Duration {
	close(p.over)
	return <-p.longest
}
