package scheduler

import "time"

const (
	// standstill is how long this process must not have run to be the reason for what was not asked, or not heard, in time: it is starved of CPU time, or
	// was stopped.
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

// watchLoop notes whether the loop comes round much later than it wanted: then what has come due meanwhile was not looked at, and answers were not heard.
func (s *Scheduler) watchLoop() {
	s.agenda.stoodStill = !s.wanted.IsZero() && time.Since(s.wanted) >= standstill
	s.wanted = time.Now()
}

// blame is why nobody has decided a tick for long: this replica has not asked, or may not have heard the answer; else the server has not answered.
func (a *agenda) blame(k *tick) (reason string) {
	if a.stoodStill || k.id == "" {
		return reasonOverload
	}
	return reasonRedis
}

// unanswered is why a tick is undecided whose claim was not answered while this process did not run for so long. What the server was silent about once stays so.
func (k *tick) unanswered(stood time.Duration) (reason string) {
	if stood >= standstill && k.reason != reasonRedis {
		return reasonOverload
	}
	return reasonRedis
}

// notAsked has a tick that is past its deadline when it is first asked for be missed for that.
func (k *tick) notAsked(now time.Time) {
	if k.id == "" && k.reason == reasonLate && k.late(now) {
		k.reason = reasonOverload
	}
}
