package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
)

// patienceInLine is how long a waiter keeps its place without asking again. It asks three times as often.
const patienceInLine = 5 * time.Second

// inLine is what a waiter was told when it asked last.
type inLine struct {
	since time.Duration // local clock, before it asked
	now   int64         // the server's clock then
	ahead int           // how many are before it
}

// Lock waits until the mutex is this caller's, first come, first served, or ctx ends: see [Semaphore.Acquire].
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.sem.Acquire(ctx) }

// Acquire waits for a row in the lock's queue, which is served in order: a release hands the row to the first in line and notifies only that waiter.
// See package locking.
func (s *Semaphore) Acquire(ctx context.Context) (*Lease, error) {
	r := s.request.WithDefaults()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("lock %q: %w", r.Lock, context.Cause(ctx))
	}
	if !s.client.work.Begin() { // which has Close wait for it
		return nil, fmt.Errorf("lock %q: %w", r.Lock, ErrClosed)
	}
	defer s.client.work.Done()
	return s.client.store.wait(ctx, r)
}

// wait waits in the lock's queue.
func (c *single) wait(ctx context.Context, r Request) (*Lease, error) {
	w := &waiter{single: c, request: r, channel: c.bell.channel(r.Lock), ring: c.bell.await(r.ID)}
	defer w.leave()
	w.request.Channel = w.channel.wire()
	began := w.cfg.Clock()
	lease, err := w.inLine(ctx)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", r.Lock, err)
	}
	w.cfg.Hooks.waited(r.Lock, w.cfg.Clock()-began)
	return lease, nil
}

// AcquireConfirmed is [Semaphore.Acquire] for work that takes time to stop: the lease has its whole length. See package locking.
func (s *Semaphore) AcquireConfirmed(ctx context.Context) (*Lease, error) {
	if s.client.work.Begin() { // else it does not get one
		defer s.client.work.Done()
	}
	for {
		lease, err := s.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		select {
		case <-lease.Confirmed():
			return lease, nil
		case <-lease.Context().Done():
			lost := s.request.WithDefaults()
			lost.ID = lease.ID()
			s.client.quit(lost) // a renewal whose reply is lost may have it last
		}
	}
}

// waiter is one call that waits.
type waiter struct {
	*single
	request Request
	channel channel
	ring    <-chan grant
	line    *line // nil until there is something to wait for
	part    func()
	pause   time.Duration
	told    bool  // that others hold it
	fault   error // why nothing is known, if that is so
}

func (w *waiter) leave() {
	w.bell.leave(w.request.ID)
	if w.part != nil {
		w.part()
	}
}

func (w *waiter) inLine(ctx context.Context) (*Lease, error) {
	for ctx.Err() == nil {
		deaf := w.bell.deaf(w.channel)
		a := w.Acquire(ctx, w.request)
		w.request.FirstTry = false
		switch {
		case a.Verdict == Granted:
			return a.Lease, nil
		case a.Verdict == Unknown && !a.Unsure():
			w.quit(w.request) // it may be in line
			return nil, a.Err
		case a.Verdict == Unknown:
			if ctx.Err() == nil { // else the reply says no more
				w.fault = a.Err
			}
			w.pause = min(max(2*w.pause, 5*time.Millisecond), w.cfg.Timeout)
			w.rest(ctx, w.pause/2+rand.N(w.pause))
			continue
		}
		w.pause, w.fault = 0, nil
		if !w.told && a.Verdict == Held {
			w.told = true
			w.cfg.Hooks.contended(a, w.request.Lock)
		}
		if lease := w.stand(ctx, a, deaf); lease != nil {
			return lease, nil
		}
	}
	w.quit(w.request)
	return nil, inVain(ctx, w.fault)
}

// inVain is the error of a wait that has ended with its context; fault is why nothing was known at last, if that is so.
func inVain(ctx context.Context, fault error) error {
	if fault != nil {
		return fmt.Errorf("%w (%w)", fault, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

// quit takes back what a request, of which nothing more will be heard, has or may get: in the background, but at once where the client closes.
func (c *Client) quit(r Request) {
	if !c.giveUp(withdrawal(r)) {
		c.tryLast(withdrawal(r), c.cfg.Clock()+c.cfg.Timeout)
	}
}

// rest sleeps before another try, until ctx ends or the client closes.
func (c *Client) rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-c.work.Life().Done():
	case <-time.After(d):
	}
}

// stand waits until the server announces a grant, or it is time to ask again. deaf is closed once a message of
// the server may have been missed since the last request was sent; nil if there was no subscription then.
func (w *waiter) stand(ctx context.Context, a Answer, deaf <-chan struct{}) *Lease {
	if w.line == nil {
		w.line, w.part = w.bell.join(w.channel)
	}
	turn := deaf
	if turn == nil {
		turn = w.bell.subscribed(w.line)
	}
	timer := time.NewTimer(w.nextLook(a, deaf != nil))
	defer timer.Stop()
	select {
	case g := <-w.ring:
		return w.take(g, a.line)
	case <-turn:
	case <-timer.C:
	case <-ctx.Done():
	case <-w.work.Life().Done():
	}
	return nil
}

// nextLook is when to ask again if nothing is heard: in time to keep the place, and when the first row may have
// run out. The first in line looks first. A waiter that misses the message of its grant has to ask before the
// grant has run out.
func (w *waiter) nextLook(a Answer, hears bool) time.Duration {
	const step, most = 20 * time.Millisecond, time.Second
	often := patienceInLine / 3
	if !hears {
		often = patienceInLine / 10
	}
	next := often - rand.N(often/5)
	if a.Until.IsZero() || a.line.now == 0 {
		return min(next, 100*time.Millisecond)
	}
	out := time.Duration(clock.ToMicros(a.Until)-a.line.now)*time.Microsecond - (w.cfg.Clock() - a.line.since)
	return max(min(next, out+min(time.Duration(a.line.ahead+1)*step, most)), step)
}

// take makes the lease of a grant that the server has told of. It can be used at once: the row's end is counted from when this
// waiter asked last, plus the time that has passed since then by the server's clock, less 1 %. The keeper confirms it. Where
// replicas have to acknowledge a grant, or a delay follows its end, the server is asked for it instead.
func (w *waiter) take(g grant, asked inLine) *Lease {
	passed := time.Duration(g.now-asked.now) * time.Microsecond
	now := w.cfg.Clock()
	micros, known := w.servers.estimate(now)
	if w.cfg.AckedReplicas > 0 || w.request.Delay > 0 || asked.now == 0 || passed < 0 || known && (g.now > micros+lease.MinuteMicros || g.token > micros+lease.DayMicros) {
		return nil
	}
	got := reply{verdict: "granted", now: g.now, floor: g.token, longest: g.longest, sent: min(asked.since+passed-passed/100, now), received: now,
		Values: []any{g.slot, g.token, g.expiry, int64(0), int64(1)}}
	l := newLease(w.Client, w.request, got)
	if now >= l.deadline {
		return nil
	}
	l.toConfirm(now + confirmAfter)
	return w.keeper.add(l)
}
