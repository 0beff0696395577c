package scheduler

import (
	"context"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
)

// publisher publishes the grants of this replica, one message after the other: grants that come while a message is under way go together in the next. It
// belongs to the loop.
type publisher struct {
	events     GrantEvents // nil for none: then nothing is published
	log        hclog.Logger
	begun      []*election.Term // to be published
	ended      []*election.Term // to be published
	publishing chan struct{}    // closed when the message that is under way is published; nil while none is
}

// begin has a grant published whose run begins.
func (p *publisher) begin(term *election.Term) {
	if p.events != nil {
		p.begun = append(p.begun, term)
	}
}

// end has a grant published whose run has ended.
func (p *publisher) end(term *election.Term) {
	if p.events != nil {
		p.ended = append(p.ended, term)
	}
}

// publish sends the grants that wait, unless a message is under way.
func (p *publisher) publish() {
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

// rest publishes all that is left, and waits.
func (p *publisher) rest() {
	for p.publishing != nil {
		<-p.publishing
		p.publishing = nil
		p.publish()
	}
}

// wait waits for the message that is under way.
func (p *publisher) wait() {
	if p.publishing != nil {
		<-p.publishing
	}
}

// orderedGrantEvents publishes one message after the other: that a grant was given back must not be overtaken by the news of the grant, which would have the others
// close its tick.
type orderedGrantEvents struct {
	GrantEvents
	mu sync.Mutex
}

// Publish publishes, when its turn comes, the terms that are then still true.
func (o *orderedGrantEvents) Publish(ctx context.Context, begun, ended []*election.Term) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.GrantEvents.Publish(ctx, begun, ended) //nolint:wrapcheck // it is what it stands for
}

// subscribe passes the messages that receive gets to a channel until ctx ends or end is called. end waits until receive has returned.
func subscribe[T any](ctx context.Context, receive func(context.Context, func([]T)), to chan<- []T) (end func()) {
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
