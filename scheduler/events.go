package scheduler

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/run"
)

// forwardMessages calls receive in a goroutine and sends its messages to a channel, until ctx ends or end is called. end waits until receive has
// returned.
func forwardMessages[T any](ctx context.Context, receive func(context.Context, func([]T)), to chan<- []T) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		receive(ctx, func(messages []T) {
			select {
			case to <- messages:
			case <-ctx.Done():
			}
		})
	}()
	return func() {
		cancel()
		<-over
	}
}

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

func (s *Scheduler) reopenUnstarted(g *grant, now time.Time) {
	t := g.task
	if s.leaving {
		return
	}
	switch {
	case g.trigger == run.Recovered: // the inspection finds the orphan again
		s.inspectAt(t, now)
	case t.isChained(): // a check compares them with the ticks of the parents
		s.checkAt(t, now)
	default:
		if i, open := t.Find(g.of.name); open { // it is open for another grant (PerTick > 1)
			t.Open[i].Won = max(t.Open[i].Won-1, 0)
			return
		}
		s.inspections.reopenTick(t, g.of.name, run.ReasonCapacity, now)
	}
}

func (s *Scheduler) handleFinished(g *grant) {
	s.starts.active.add(g.rules.Name, -1)
	s.places.releasePlace(g.task)
	now := s.now()
	if g.rules.Runs.Recovers != nil { // the run may have left an orphan, and this may be the only replica
		s.inspectAt(g.task, now)
	}
	if k := g.returned; k != nil && k.IsReturning() {
		k.ID, k.Doubted = "", false
		s.agenda.Ask(k, now, now)
	}
	if g.unstarted {
		s.reopenUnstarted(g, now)
	}
	s.recoveries.roomFor(g.task, g.rules, g.term, now)
	s.wakeParked(now, g.task)
}
