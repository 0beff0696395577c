package scheduler

import (
	"context"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
)

// A publisher publishes the grants of this replica, one message after the other. Grants that arrive while a message is under way go into the next. It
// belongs to the loop.
type publisher struct {
	events     GrantEvents // nil: nothing is published
	log        hclog.Logger
	begun      []*election.Term // terms whose runs have begun, still to be published
	ended      []*election.Term // terms that have ended, still to be published
	publishing chan struct{}    // closed when the message under way is published; nil if there is none
}

// queueBegun queues the term of a run that has begun.
func (p *publisher) queueBegun(term *election.Term) {
	if p.events != nil {
		p.begun = append(p.begun, term)
	}
}

// queueEnded queues the term of a run that has ended.
func (p *publisher) queueEnded(term *election.Term) {
	if p.events != nil {
		p.ended = append(p.ended, term)
	}
}

// publishQueued sends the queued terms, unless a message is under way.
func (p *publisher) publishQueued() {
	if p.publishing != nil || len(p.begun)+len(p.ended) == 0 {
		return
	}
	begun, ended, done := p.begun, p.ended, make(chan struct{})
	p.begun, p.ended, p.publishing = nil, nil, done
	go func() {
		defer close(done)
		if err := p.events.Publish(context.Background(), begun, ended); err != nil {
			p.log.Debug("grants not published to other replicas", "error", err)
		}
	}()
}

// publishRest publishes all that is left, and waits.
func (p *publisher) publishRest() {
	for p.publishing != nil {
		<-p.publishing
		p.publishing = nil
		p.publishQueued()
	}
}

// wait waits for the message under way.
func (p *publisher) wait() {
	if p.publishing != nil {
		<-p.publishing
	}
}

// An orderedGrantEvents publishes one message after the other. Otherwise the news of a grant could arrive after the news of its return, and the other
// replicas would close the tick.
type orderedGrantEvents struct {
	GrantEvents
	mu sync.Mutex
}

// Publish waits for earlier calls, and then publishes the terms that are still valid.
func (o *orderedGrantEvents) Publish(ctx context.Context, begun, ended []*election.Term) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.GrantEvents.Publish(ctx, begun, ended) //nolint:wrapcheck // it is what it stands for
}

// forwardMessages passes the messages from receive to a channel until ctx ends or end is called. end waits until receive has returned.
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
