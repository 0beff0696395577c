// Package events passes the outcomes of runs and ticks, and the starts and ends of problems, to subscribers in the same process.
package events

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/journal"
)

// An Event is an [Outcome], a [ProblemBegan] or a [ProblemEnded].
type Event interface{ isEvent() }

// An Outcome is the record of the end of a run, of a failed attempt that was retried, or of a tick that did not run. If several replicas write such a record,
// only the replica whose record reached Redis first publishes it, once. Output is nil.
type Outcome struct{ journal.Record }

// A ProblemBegan is the start of a problem of this replica. Code is the code of the warning that `cronclave status` shows.
type ProblemBegan struct {
	Code string
	At   time.Time
}

// A ProblemEnded is the end of a problem. Code is the code of the warning in status, or the kind of an incident of Redis. An incident has no ProblemBegan,
// because replicas detect it only when it is over.
type ProblemEnded struct {
	Code string
	journal.Interval
}

func (Outcome) isEvent()      {}
func (ProblemBegan) isEvent() {}
func (ProblemEnded) isEvent() {}

// MostWaiting is the maximum number of queued events per subscriber. It is large because many runs may be recorded at once after an outage of Redis.
const MostWaiting = 20_000

// A Bus passes events to its subscribers. Publishing never waits: each subscriber has its own queue, so a slow subscriber delays neither the publisher nor the
// others. If a queue is full, further events are dropped for its subscriber.
type Bus struct {
	log         hclog.Logger
	subscribers []*subscriber
}

// NewBus returns a Bus without subscribers.
func NewBus(log hclog.Logger) *Bus { return &Bus{log: log} }

// Subscribe adds a subscriber. Call it before [Bus.Publish] and [Bus.Run]. handle is called with one event at a time, in the order of publication. When the
// context of Run ends, Run waits until handle has handled all queued events. So a handle that calls other systems needs a time limit.
func (b *Bus) Subscribe(handle func(Event)) {
	b.subscribers = append(b.subscribers, &subscriber{handle: handle, wake: make(chan struct{}, 1)})
}

// Publish queues an event for all subscribers. It is safe for concurrent use, and does nothing on a nil Bus.
func (b *Bus) Publish(e Event) {
	if b == nil {
		return
	}
	for _, s := range b.subscribers {
		s.queueEvent(e)
	}
}

// Run passes events on until ctx ends and all queued events are handled.
func (b *Bus) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, s := range b.subscribers {
		all.Go(func() { s.handleEvents(ctx, b.log) })
	}
}

type subscriber struct {
	handle func(Event)
	wake   chan struct{} // of capacity 1; holds a value while events may be waiting

	mu      sync.Mutex
	waiting []Event
	dropped int // events that were dropped since the last call of takeEvents
}

func (s *subscriber) queueEvent(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == MostWaiting {
		s.dropped++
		return
	}
	s.waiting = append(s.waiting, e)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriber) takeEvents() (waiting []Event, dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting, dropped = s.waiting, s.dropped
	s.waiting, s.dropped = nil, 0
	return waiting, dropped
}

// handleEvents handles events until ctx ends, and then the events that are still queued.
func (s *subscriber) handleEvents(ctx context.Context, log hclog.Logger) {
	for ended := false; !ended; {
		select {
		case <-s.wake:
		case <-ctx.Done():
			ended = true
		}
		waiting, dropped := s.takeEvents()
		for _, e := range waiting {
			s.handle(e)
		}
		if dropped > 0 {
			log.Warn("events dropped: the one that reads them is too slow", "dropped", dropped)
		}
	}
}
