package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/election"
)

// grantEvents returns the channel of grant events. While some due ticks are not open yet, it returns nil, because an event about such a tick would
// have no effect.
func (s *Scheduler) grantEvents() <-chan []election.GrantEvent {
	if s.agenda.More() {
		return nil
	}
	return s.grants
}

// handleGrants handles all grant events that have arrived, so that ticks which other replicas won are not claimed.
func (s *Scheduler) handleGrants() {
	for {
		select {
		case n := <-s.grantEvents():
			s.handleEvents(n)
		default:
			return
		}
	}
}

// soon is shorter than any lease, and longer than the difference between two replicas' estimates of Redis' clock. If a term ends within this time,
// its run was given back or handed over.
const soon = 500 * time.Millisecond

// handleEvents closes ticks that other replicas won, and schedules claims for ticks that wait for a slot if a slot became free. It does not close a
// tick whose claim is under way, because the reply to the claim follows. It ignores grants of jobs with PerTick > 1, because one grant does not
// decide the tick.
func (s *Scheduler) handleEvents(events []election.GrantEvent) {
	now := s.now()
	var won []*task
	for _, n := range events {
		t := s.tasks[n.Job]
		switch {
		case t != nil && n.Tick.IsZero():
			s.recoveries.wakeWaiting(t, now)
			s.checkAfter(t, now)
		case t != nil && n.Until.Before(now.Add(soon)): // the run was handed over or given back
			s.inspectAt(t, n.Until)
			continue
		}
		if t == nil || t.PerTick > 1 {
			continue
		}
		i, open := t.Find(n.Tick)
		if !open || t.Open[i].Placed || t.Open[i].IsAsking() {
			continue
		}
		won = append(won, t)
		s.inspectAt(t, n.Until)
		s.agenda.Close(t.Open[i])
	}
	s.wakeParked(now, won...)
}
