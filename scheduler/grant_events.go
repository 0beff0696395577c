package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/election"
)

// grantEvents returns the channel of the grants of other replicas. It returns nil while due ticks are not open yet, because an event could not close them.
func (s *Scheduler) grantEvents() <-chan []election.GrantEvent {
	if s.agenda.More() {
		return nil
	}
	return s.grants
}

// handleGrants handles all published grants that have arrived. A tick that another replica won need not be claimed.
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

// soon is shorter than any lease, and longer than the difference between two replicas' estimates of the server's clock. A grant that ends so soon has
// ended already.
const soon = 500 * time.Millisecond

// handleEvents closes ticks that other replicas won, and claims ticks that wait for a slot if one has become free. A tick that is being claimed here is
// left to its reply. If a tick of the job has several grants, the event of one grant does not decide it, and is ignored.
func (s *Scheduler) handleEvents(events []election.GrantEvent) {
	now := s.now()
	var won []*task
	for _, n := range events {
		t := s.tasks[n.Job]
		switch {
		case t != nil && n.Tick.IsZero():
			s.recoveries.wakeWaiting(t, now)
			s.checkAfter(t, now)
		case t != nil && n.Until.Before(now.Add(soon)): // the run was left to a recovery, or given back
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
