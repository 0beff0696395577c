package single

import (
	"context"
	"runtime"
	"time"

	"github.com/cronclave/cronclave/internal/lease/transport"
)

// batcherOf returns the batcher for a call. Calls that replicas must acknowledge do not delay the others.
func (c *sender) batcherOf(k call) *batcher {
	if k.sync {
		return &c.acknowledged
	}
	return &c.batcher
}

// together executes a call in a round trip that it shares with the calls of other callers.
func (c *sender) together(ctx context.Context, k call) reply {
	v := c.batcherOf(k)
	if v.first() {
		defer v.arrive()
		if c.cfg.Work.Begin() {
			defer c.cfg.Work.Done()
		}
		return c.alone(ctx, k)
	}
	t := &waitingCall{call: k, turns: make(chan turn, 1)}
	v.join(t)
	first := c.cfg.Timeout / joinTimeoutPart
	timer, patient := time.NewTimer(first), true
	defer timer.Stop()
	for {
		select {
		case s := <-t.turns:
			if s == done {
				return t.reply
			}
			travel := func() { c.travel(context.WithoutCancel(ctx), v) } // the round trip is not only for this caller
			if !c.cfg.Work.Go(travel) {
				travel()
			}
		case <-timer.C:
			if !patient {
				v.leave(t)
				return reply{err: transport.Unknown(context.DeadlineExceeded)}
			}
			patient = false
			timer.Reset(c.cfg.Timeout - first)
			v.hurry(t)
		case <-ctx.Done():
			v.leave(t)
			return reply{err: transport.Unknown(ctx.Err())}
		}
	}
}

// travel makes one round trip for all waiting calls, and appoints the leader of the next.
func (c *sender) travel(ctx context.Context, v *batcher) {
	group := v.depart()
	if len(group) > 0 {
		calls := make([]call, len(group))
		for i, t := range group {
			calls[i] = t.call
		}
		ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
		for i, r := range c.send(ctx, calls) {
			group[i].reply = r
			group[i].turns <- done
		}
		v.back(len(group))
		runtime.Gosched()
	}
	v.arrive()
}
