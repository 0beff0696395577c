package scheduler

import (
	"sync/atomic"
	"time"
)

// lateness lets other goroutines ask the loop which tick is the latest.
type lateness struct {
	asks  chan chan<- time.Duration
	round atomic.Pointer[time.Time] // when the loop last came round; nil before it begins, and in the drain
}

// longestAnswer is for how long [Scheduler.Lateness] waits for the loop.
const longestAnswer = 500 * time.Millisecond

// Lateness is for how long the oldest tick has been due that has no outcome yet, as far as this replica knows, and has none for another reason than that the
// job's own slots are held. A loop that does not answer is late since it last came round. ok is false while there is no loop: before the server has answered
// for the first time, and in a drain. It may be called at any time, and returns within half a second.
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

// comesRound notes that the loop has.
func (l *lateness) comesRound(at time.Time) { l.round.Store(&at) }

// end notes that the loop has ended.
func (l *lateness) end() { l.round.Store(nil) }

// latest is for how long the latest tick of some tasks has been due.
func latest(tasks map[string]*task, now time.Time) (late time.Duration) {
	for _, t := range tasks {
		if due, ok := t.Overdue(); ok {
			late = max(late, now.Sub(due))
		}
	}
	return late
}
