package redis

import (
	"context"
	"runtime"
	"time"

	"github.com/cronclave/cronclave/internal/lease/transport"
)

// batcherOf returns the batcher for a call. Calls that replicas must acknowledge have their own, so that they do not delay other calls.
func (c *sender) batcherOf(k call) *batcher {
	if k.sync {
		return &c.acknowledged
	}
	return &c.batcher
}

// execShared executes a call in a round trip that may be shared with the calls of other callers. A call that is sent at once waits for its timeout
// even if ctx is canceled.
func (c *sender) execShared(ctx context.Context, k call) reply {
	v := c.batcherOf(k)
	if v.goFirst() {
		defer v.endTrip()
		if c.cfg.Work.Begin() {
			defer c.cfg.Work.Done()
		}
		return c.execAlone(ctx, k)
	}
	t := &waitingCall{call: k, turns: make(chan turn, 1)}
	v.joinWaiting(t)
	first := c.cfg.Timeout / joinTimeoutPart
	timer, patient := time.NewTimer(first), true
	defer timer.Stop()
	for {
		select {
		case s := <-t.turns:
			if s == done {
				return t.reply
			}
			travel := func() { c.leadTrip(context.WithoutCancel(ctx), v) } // the round trip has the calls of other callers, too
			if !c.cfg.Work.Go(travel) {
				travel()
			}
		case <-timer.C:
			if !patient {
				v.leaveWaiting(t)
				return reply{err: transport.Unknown(context.DeadlineExceeded)}
			}
			patient = false
			timer.Reset(c.cfg.Timeout - first)
			v.leadNow(t)
		case <-ctx.Done():
			v.leaveWaiting(t)
			return reply{err: transport.Unknown(ctx.Err())}
		}
	}
}

// leadTrip makes one round trip for a group of waiting calls, and appoints the leader of the next.
func (c *sender) leadTrip(ctx context.Context, v *batcher) {
	group := v.takeGroup()
	if len(group) > 0 {
		calls := make([]call, len(group))
		for i, t := range group {
			calls[i] = t.call
		}
		ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
		for i, r := range c.sendCalls(ctx, calls) {
			group[i].reply = r
			group[i].turns <- done
		}
		v.callsBack(len(group))
		runtime.Gosched()
	}
	v.endTrip()
}
