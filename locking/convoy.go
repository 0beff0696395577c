package locking

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// convoy has single calls travel together (group commit): those that come while a round trip is under way go together in
// the next one, and nobody lingers. One of the callers leads: it has all sent, and the next is led by one of those that wait then.
type convoy struct {
	mu      sync.Mutex
	waiting []*traveller
	under   int // leaders: round trips under way, and callers that are told to make one
	away    int // calls on their way
}

// lanes is how many round trips are under way at once when there is a crowd: while the server is busy with one, this process is with the replies of the
// other. A trip beside another needs a crowd to be worth it, and takes half of all, so that they stay alike.
const lanes, crowd = 2, 8

// worth tells whether those who wait make one more round trip. mu is held.
func (v *convoy) worth() bool {
	n := len(v.waiting)
	return n > 0 && (v.under == 0 || v.under < lanes && n >= crowd)
}

// traveller is one call, and who waits for its reply.
type traveller struct {
	call   call
	reply  reply
	signal chan signal // capacity 1
}

// signal is what a traveller waits for.
type signal int

const (
	lead   signal = iota // it is its turn to make a round trip
	landed               // its reply is there
)

// patience is for which part of its time-out a round trip is waited for by others. Then they send beside it: a connection that
// hangs holds up nobody for longer.
const patience = 4

// convoyOf is where a call travels: those that need no replica's word do not wait with those that do.
func (c *Client) convoyOf(k call) *convoy {
	if k.sync {
		return &c.acknowledged
	}
	return &c.convoy
}

// together executes a call in company.
func (c *Client) together(ctx context.Context, k call) reply {
	v := c.convoyOf(k)
	if v.first() {
		defer v.arrive()
		if c.begin() {
			defer c.background.Done()
		}
		return c.alone(ctx, k)
	}
	t := &traveller{call: k, signal: make(chan signal, 1)}
	v.join(t)
	first := c.cfg.Timeout / patience
	tired, rested := time.NewTimer(first), true
	defer tired.Stop()
	for {
		select {
		case s := <-t.signal:
			if s == landed {
				return t.reply
			}
			travel := func() { c.travel(context.WithoutCancel(ctx), v) } // it is not only this one's
			if !c.later(travel) {
				travel()
			}
		case <-tired.C:
			if !rested {
				v.leave(t)
				return reply{err: unknown(context.DeadlineExceeded)}
			}
			rested = false
			tired.Reset(c.cfg.Timeout - first)
			v.hurry(t)
		case <-ctx.Done():
			v.leave(t)
			return reply{err: unknown(ctx.Err())}
		}
	}
}

// travel makes one round trip for all who wait, and hands on.
func (c *Client) travel(ctx context.Context, v *convoy) {
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
			group[i].signal <- landed
		}
		v.back(len(group))
		runtime.Gosched()
	}
	v.arrive()
}

func (v *convoy) back(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.away -= n
}

// first tells a caller that nobody else is under way or waits: it goes at once, by itself and in its own goroutine. What was sent can't be
// taken back, so it is not left before its time-out if ctx is cancelled meanwhile.
func (v *convoy) first() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.under > 0 || len(v.waiting) > 0 {
		return false
	}
	v.under++
	return true
}

// join lets a caller wait, or lead at once if nobody does.
func (v *convoy) join(t *traveller) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting = append(v.waiting, t)
	if v.worth() {
		v.appoint(v.waiting[0])
	}
}

// appoint makes a waiting caller a leader, unless it is one. mu is held.
func (v *convoy) appoint(t *traveller) {
	select {
	case t.signal <- lead:
		v.under++
	default:
	}
}

// depart returns who goes along. Whoever was to lead besides has no reason to any more.
func (v *convoy) depart() []*traveller {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := min(len(v.waiting), max(crowd, (len(v.waiting)+v.away+1)/lanes), maxBatch)
	group := slices.Clone(v.waiting[:n])
	v.away += n
	v.waiting = slices.Delete(v.waiting, 0, n)
	for _, t := range group {
		v.dismiss(t)
	}
	return group
}

// dismiss takes back that a caller is to lead; false if it is not, or has begun. mu is held.
func (v *convoy) dismiss(t *traveller) bool {
	select {
	case <-t.signal: // as long as it waits, that is all it is told
		v.under--
		return true
	default:
		return false
	}
}

// arrive ends a round trip. The next one is led by the first of those that wait.
func (v *convoy) arrive() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.under--
	if v.worth() {
		v.appoint(v.waiting[0])
	}
}

// hurry has a caller that still waits lead a round trip beside those under way.
func (v *convoy) hurry(t *traveller) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if slices.Contains(v.waiting, t) {
		v.appoint(t)
	}
}

// leave takes a caller out, unless its call is on its way.
func (v *convoy) leave(t *traveller) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.Index(v.waiting, t)
	if i < 0 {
		return
	}
	v.waiting = slices.Delete(v.waiting, i, i+1)
	if v.dismiss(t) && v.worth() {
		v.appoint(v.waiting[0])
	}
}
