package scheduler

import (
	"sync/atomic"
	"time"
)

// A lateness lets other goroutines ask the loop for the lateness of the oldest undecided tick.
type lateness struct {
	asks  chan chan<- time.Duration
	round atomic.Pointer[time.Time] // the time of the last iteration of the loop; nil before the first, and in a drain
}

// longestAnswer is the maximum time for which [Scheduler.Lateness] waits for the loop.
const longestAnswer = 500 * time.Millisecond

// Lateness returns the time for which the oldest undecided tick has been due, as far as this replica knows. Ticks that only wait for a slot of their
// own job do not count. If the scheduler's loop does not answer, Lateness returns the time since the loop's last iteration. ok is false while no loop
// runs: before Redis has answered for the first time, and in a drain. Lateness may be called at any time, and returns within half a second.
func (s *Scheduler) Lateness() (late time.Duration, ok bool) {
	round := s.late.round.Load()
	if round == nil {
		return 0, false
	}
	answer := make(chan time.Duration, 1) // capacity 1, so that the loop does not wait for the caller
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

// latestOverdue returns the time for which the oldest undecided tick of some tasks has been due.
func latestOverdue(tasks map[string]*task, now time.Time) (late time.Duration) {
	for _, t := range tasks {
		if due, ok := t.Overdue(); ok {
			late = max(late, now.Sub(due))
		}
	}
	return late
}
