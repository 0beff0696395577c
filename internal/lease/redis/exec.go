package redis

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxRounds is the maximum number of times that a call is sent. A node may redirect the call, and the next node may need the text of the script. Both
// may happen again after SCRIPT FLUSH or another migration of the slot.
const maxRounds = 8

// execCalls sends calls in one pipeline per server, and returns a reply for each call. Each reply has its own error. A single call shares a round
// trip with the calls of other callers, except in a Cluster and while the client closes. In a Cluster, it would also have to wait for a node that
// hangs. While the client closes, Close would have to wait for other calls.
func (c *sender) execCalls(ctx context.Context, calls []call) []reply {
	if len(calls) == 1 {
		return []reply{c.execOne(ctx, calls[0])}
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.sendCalls(ctx, calls)
}

// execOne is execCalls for one call.
func (c *sender) execOne(ctx context.Context, k call) reply {
	if c.servers.cluster == nil && c.cfg.Work.Ready() == nil {
		return c.execShared(ctx, k)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.sendCalls(ctx, []call{k})[0]
}

// joinTimeoutPart divides the timeout of a round trip. A caller that has waited for this part of the timeout leads another round trip, because the
// connection of the current one may hang.
const joinTimeoutPart = 4

// batcherOf returns the batcher for a call. Calls that replicas must acknowledge have their own batcher, so that they do not delay other calls.
func (c *sender) batcherOf(k call) *batcher {
	if k.sync {
		return &c.acknowledged
	}
	return &c.batcher
}

// execShared executes a call in a round trip that other callers may share. If the call is sent at once, execShared waits for the reply or the
// timeout, even if ctx is canceled.
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
			travel := func() { c.leadTrip(context.WithoutCancel(ctx), v) } // the end of ctx must not end the calls of other callers
			if !c.cfg.Work.Go(travel) {
				travel()
			}
		case <-timer.C:
			if !patient {
				v.leaveWaiting(t)
				return reply{err: Unknown(context.DeadlineExceeded)}
			}
			patient = false
			timer.Reset(c.cfg.Timeout - first)
			v.leadNow(t)
		case <-ctx.Done():
			v.leaveWaiting(t)
			return reply{err: Unknown(ctx.Err())}
		}
	}
}

// leadTrip makes one round trip for a group of waiting calls, and appoints the next leader.
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

// execAlone sends one call to the only server, without the cost of routing.
func (c *sender) execAlone(ctx context.Context, k call) reply {
	ctx, cancel := c.deadlines.boundContext(ctx, c.cfg.Timeout)
	defer cancel()
	if k.sync { // WAIT must follow the script in the same pipeline: only sendCalls does this
		return c.sendCalls(ctx, []call{k})[0]
	}
	s := server{redis: c.servers.single, clock: c.servers.only}
	if err := c.learnTime(ctx, s); err != nil {
		return reply{err: err}
	}
	for e, sent, round := (routedCall{}), k.asked, 1; ; round++ {
		if sent == 0 || round > 1 {
			sent = c.cfg.Clock()
		}
		micros, _ := s.clock.At(sent)
		raw, err := c.sendCommand(ctx, k, e.load, micros+c.cfg.Timeout.Microseconds())
		if next, ok := e.nextRoute(err, "", false); ok && round < maxRounds {
			e = next
			continue
		}
		received := sent
		if m := k.script.Many; m == nil || m.Common > 0 { // the time of receipt is only needed for a reply with Redis's time
			received = c.cfg.Clock()
		}
		r := readOne(k, s.clock, raw, err, sent, received)
		r.acked = c.isAcked(nil)
		c.learnReply(k, r)
		return r
	}
}

func (c *sender) sendCommand(ctx context.Context, k call, load bool, until int64) ([]any, error) {
	cmd := k.asCommand(ctx, load, until)
	if m := k.script.Many; m != nil {
		if err := Process(ctx, c.servers.single, Once{Cmd: cmd}); err != nil && cmd.Err() == nil {
			return nil, err
		}
		raw, err := cmd.Slice()
		return replyTo(m, 0, 1, raw, err)
	}
	pipe := c.servers.single.Pipeline() // in a pipeline, go-redis replaces a broken connection after any error
	_ = pipe.Process(ctx, Once{Cmd: cmd})
	if err := Exec(ctx, pipe); err != nil && cmd.Err() == nil {
		return nil, err
	}
	return cmd.Slice()
}

// sendCalls is execCalls without sharing round trips with other callers. It is for many calls, and for renewals, which must not wait for other calls.
func (c *sender) sendCalls(ctx context.Context, calls []call) []reply {
	replies := make([]reply, len(calls))
	todo := make([]routedCall, len(calls))
	for i := range calls {
		todo[i].call = i
	}
	for round := 0; len(todo) > 0 && round < maxRounds; round++ {
		batches := c.sortByServer(ctx, calls, replies, todo)
		again := make([][]routedCall, len(batches))
		var trips sync.WaitGroup
		for n, b := range batches {
			trips.Go(func() { again[n] = c.roundTrip(ctx, b, calls, replies) })
		}
		trips.Wait()
		todo = slices.Concat(again...)
	}
	setReceived(replies, c.cfg.Clock())
	return replies
}

// setReceived sets the time of receipt of replies. All callers get their replies at the same time, after the last reply has arrived.
func setReceived(replies []reply, now time.Duration) {
	for i := range replies {
		replies[i].received = now
		setReceived(replies[i].parts, now)
	}
}

type batch struct {
	server      server
	routedCalls []routedCall
}

// sortByServer groups routed calls by server. If it finds no server for a call, it stores an error as the reply.
func (c *sender) sortByServer(ctx context.Context, calls []call, replies []reply, todo []routedCall) []*batch {
	var batches []*batch
	byAddr, sentTo := map[string]*batch{}, map[string]server{}
	var lost error // set if the state of the Cluster can't be read
	for _, e := range todo {
		s, known := sentTo[e.to]
		err := lost
		switch {
		case err != nil || known:
		case e.to == "":
			s, err = c.servers.holderOf(ctx, calls[e.call].keys[0])
			lost = err
		default:
			if s, err = c.servers.serverAt(ctx, e.to); err == nil {
				sentTo[e.to] = s
			}
		}
		if err != nil {
			replies[e.call] = reply{err: Unknown(err)}
			continue
		}
		b := byAddr[s.addr]
		if b == nil {
			b = &batch{server: s}
			byAddr[s.addr] = b
			batches = append(batches, b)
		}
		b.routedCalls = append(b.routedCalls, e)
	}
	return batches
}

// roundTrip makes one round trip to one server, and returns the calls that have to be sent again. go-redis does not fall back from EVALSHA to EVAL in
// pipelines. Therefore, if the server has not loaded a script, its calls are sent again, the first of them with the text of the script.
func (c *sender) roundTrip(ctx context.Context, b *batch, calls []call, replies []reply) (again []routedCall) {
	if err := c.learnTime(ctx, b.server); err != nil {
		for _, e := range b.routedCalls {
			replies[e.call] = reply{err: err}
		}
		return nil
	}
	pipe := b.server.redis.Pipeline()
	batchCalls := c.enqueueBatch(ctx, pipe, b, calls)
	acks := c.awaitReplicas(ctx, pipe, b, calls)
	sent := c.cfg.Clock()
	_ = Exec(ctx, pipe) // each command has its own error
	received := c.cfg.Clock()
	silent := false
	for _, p := range batchCalls {
		for n, e := range p.routedCalls {
			raw, err := p.replyAt(n, calls[e.call].script.Many)
			if next, ok := e.nextRoute(err, b.server.addr, len(p.routedCalls) > 1); ok {
				replies[e.call] = reply{err: Unknown(err)}
				again = append(again, next)
				continue
			}
			silent = silent || err != nil && !IsReply(err)
			replies[e.call] = readOne(calls[e.call], b.server.clock, raw, err, sent, received)
			replies[e.call].acked = c.isAcked(acks)
		}
	}
	for _, e := range b.routedCalls {
		c.learnReply(calls[e.call], replies[e.call])
	}
	if silent {
		c.servers.reloadState(ctx)
	}
	return again
}

// enqueueBatch puts the calls of a batch into a pipeline as batch calls, and returns these. Redis refuses to execute them after the timeout of the
// round trip.
func (c *sender) enqueueBatch(ctx context.Context, pipe redis.Pipeliner, b *batch, calls []call) []*batchCall {
	micros, _ := b.server.clock.At(c.cfg.Clock())
	batchCalls := c.packCalls(b, calls)
	for _, p := range batchCalls {
		p.enqueueIn(ctx, pipe, calls, micros+c.cfg.Timeout.Microseconds())
	}
	return batchCalls
}

// packCalls combines calls of the same script into batch calls, if a single server has all keys.
func (c *sender) packCalls(b *batch, calls []call) []*batchCall {
	var batchCalls []*batchCall
	open := map[string]*batchCall{} // by script: the batch call to which more calls may be added
	loaded := map[string]bool{}
	for _, e := range b.routedCalls {
		k := calls[e.call]
		alone := !c.servers.one || k.script.Batch == nil && k.script.Many == nil || k.heavy || e.alone
		if p := open[k.script.SHA]; p != nil && !alone && len(p.routedCalls) < mostTogether && k.sameShape(calls[p.routedCalls[0].call]) {
			p.routedCalls = append(p.routedCalls, e)
			continue
		}
		p := &batchCall{routedCalls: []routedCall{e}}
		batchCalls = append(batchCalls, p)
		if !alone {
			open[k.script.SHA] = p
		}
	}
	for _, p := range batchCalls {
		s := p.scriptOf(calls)
		for _, e := range p.routedCalls {
			p.load = p.load || e.load && !loaded[s.SHA]
		}
		loaded[s.SHA] = loaded[s.SHA] || p.load
	}
	return batchCalls
}

// awaitReplicas appends WAIT to a pipeline if a call needs the acknowledgement of replicas. WAIT must be on the connection of the scripts, because it
// covers only the writes of its own connection.
func (c *sender) awaitReplicas(ctx context.Context, pipe redis.Pipeliner, b *batch, calls []call) *redis.Cmd {
	if !slices.ContainsFunc(b.routedCalls, func(e routedCall) bool { return calls[e.call].sync }) {
		return nil
	}
	patience := c.cfg.AckTimeout
	if end, ok := ctx.Deadline(); ok { // leave time for the reply
		patience = max(min(patience, time.Until(end)/2), time.Millisecond)
	}
	return pipe.Do(ctx, "WAIT", c.cfg.AckedReplicas, patience.Milliseconds())
}

// isAcked reports whether enough replicas have acknowledged the writes. It returns true if no acknowledgement is required.
func (c *sender) isAcked(acks *redis.Cmd) bool {
	if c.cfg.AckedReplicas == 0 || acks == nil {
		return c.cfg.AckedReplicas == 0
	}
	n, err := acks.Int()
	return err == nil && n >= c.cfg.AckedReplicas
}
