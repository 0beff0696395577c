package scheduler

import (
	"fmt"
	"time"
)

// Leftovers returns the entries that a scheduler that has returned still counts as its own; none, if its books are right.
func (s *Scheduler) Leftovers() (left []string) {
	note := func(what string, n int) {
		if n != 0 {
			left = append(left, fmt.Sprint(n, " ", what))
		}
	}
	note("places taken", s.places.taken)
	note("runs", s.Running())
	note("transitions refused", s.agenda.Refusals())
	note("ticks to ask for", s.agenda.Asks().Len())
	note("ticks that wait for a place", s.agenda.Starved())
	note("words to tell", len(s.published.begun)+len(s.published.ended))
	note("recoveries", len(s.recoveries.known))
	note("requests to look at", s.requests.due.Len())
	for _, t := range s.tasks {
		note("places taken of "+t.Name, t.Running)
	}
	return left
}

// RetryPause is the pause after a try.
func RetryPause(r Retry, number int) time.Duration { return r.pauseAfter(number) }

// Turn is how long a replica lets others ask first for a tick of a job.
func (s *Scheduler) Turn(job string, tick time.Time) time.Duration {
	return s.cfg.turnDelay(s.tasks[job], tick)
}
