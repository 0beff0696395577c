package scheduler

import (
	"sync/atomic"
	"time"
)

// A lateness lets other goroutines ask the loop for the age of the latest tick.
type lateness struct {
	asks  chan chan<- time.Duration
	round atomic.Pointer[time.Time] // the last iteration of the loop; nil before the first, and in a drain
}

// longestAnswer bounds the wait of [Scheduler.Lateness] for the loop.
const longestAnswer = 500 * time.Millisecond

// Lateness returns how long the oldest undecided tick has been due, as far as this replica knows. Ticks that only wait for a slot of their own job do
// not count. If the loop does not answer, Lateness returns the time since its last iteration. ok is false while there is no loop: before the server
// has answered for the first time, and in a drain. It may be called at any time, and returns within half a second.
func (s *Scheduler) Lateness() (late time.Duration, ok bool) {
	round := s.late.round.Load()
	if round == nil {
		return 0, false
	}
	answer := make(chan time.Duration, 1) // the loop does not wait for the caller
	limit := time.NewTimer(longestAnswer)
	defer limit.Stop()
	select {
	case s.late.asks <- answer:
		return <-answer, true
	case <-limit.C:
		return time.Since(*round), true
	}
}

// noteIteration records an iteration of the loop.
func (l *lateness) noteIteration(at time.Time) { l.round.Store(&at) }

// noteEnd records the end of the loop.
func (l *lateness) noteEnd() { l.round.Store(nil) }

// latestOverdue returns how long the latest tick of some tasks has been due.
func latestOverdue(tasks map[string]*task, now time.Time) (late time.Duration) {
	for _, t := range tasks {
		if due, ok := t.Overdue(); ok {
			late = max(late, now.Sub(due))
		}
	}
	return late
}
