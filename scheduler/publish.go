package scheduler

import (
	"context"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
)

// A publisher publishes the grants of this replica in messages, one message at a time. Terms that are queued while a message is under way go into the
// next message. It belongs to the loop.
type publisher struct {
	events     GrantEvents // if nil, nothing is published
	log        hclog.Logger
	begun      []*election.Term // granted terms that are not published yet
	ended      []*election.Term // ended terms that are not published yet
	publishing chan struct{}    // closed when the current message is published; nil without a message
}

// queueBegun queues a granted term for the next message.
func (p *publisher) queueBegun(term *election.Term) {
	if p.events != nil {
		p.begun = append(p.begun, term)
	}
}

// queueEnded queues an ended term for the next message.
func (p *publisher) queueEnded(term *election.Term) {
	if p.events != nil {
		p.ended = append(p.ended, term)
	}
}

// publishQueued sends the queued terms in a new goroutine, unless a message is under way.
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

// publishRest waits until all queued terms are published.
func (p *publisher) publishRest() {
	for p.publishing != nil {
		<-p.publishing
		p.publishing = nil
		p.publishQueued()
	}
}

// wait waits until the current message is published.
func (p *publisher) wait() {
	if p.publishing != nil {
		<-p.publishing
	}
}

// An orderedGrantEvents publishes one message at a time. Without it, the event of a grant could arrive after the event that the grant was given back,
// and other replicas would close the tick.
type orderedGrantEvents struct {
	GrantEvents
	mu sync.Mutex
}

// Publish waits for earlier calls and then publishes the terms.
func (o *orderedGrantEvents) Publish(ctx context.Context, begun, ended []*election.Term) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.GrantEvents.Publish(ctx, begun, ended) //nolint:wrapcheck // it is what it stands for
}

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
