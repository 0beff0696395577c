package scheduler

import (
	"fmt"
	"time"
)

// Leftovers tells what a scheduler that has returned still counts as its own; nothing, if its books are right.
func (s *Scheduler) Leftovers() (left []string) {
	note := func(what string, n int) {
		if n != 0 {
			left = append(left, fmt.Sprint(n, " ", what))
		}
	}
	note("places taken", s.running)
	note("runs", s.Running())
	note("ticks to ask for", len(s.agenda.asks.items))
	note("ticks that wait for a place", len(s.agenda.starved.items))
	note("words to tell", len(s.begun)+len(s.ended))
	note("heirs", len(s.heirs.known))
	note("requests to look at", len(s.waitingErrands.items))
	for _, t := range s.tasks {
		note("places taken of "+t.Name, t.running)
	}
	return left
}

// RetryPause is the time before a try.
func RetryPause(r Retry, number int) time.Duration { return r.pause(number) }

// Turn is how long a replica lets others ask first for a tick of a job.
func (s *Scheduler) Turn(job string, tick time.Time) time.Duration { return s.turn(s.tasks[job], tick) }
