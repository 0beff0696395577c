package redis

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
)

// confirmAfter is the time after which the keeper renews a lease that a message granted, unless a caller of locking.Lease.Confirmed waits for the
// renewal. A lease that is released earlier needs no renewal.
const confirmAfter = 50 * time.Millisecond

// Wait waits in the lock's queue until a slot is granted or ctx ends.
func (c *Store) Wait(ctx context.Context, r lease.Request) (lease.Grant, error) {
	w := &waiter{store: c, request: r, channel: c.notifier.channelFor(r.Lock), notified: c.notifier.awaitGrant(r.ID),
		retry: lease.NewRetry(c.cfg.Timeout)}
	defer w.leaveQueue()
	w.request.Channel = w.channel.wireName()
	return w.inLine(ctx)
}

// A waiter is one call of [Store.Wait].
type waiter struct {
	store     *Store
	request   lease.Request
	channel   channel
	notified  <-chan rowGrant
	line      *line // nil before the first call of standInLine
	part      func()
	retry     *backoff.Backoff // for requests whose outcome is unknown
	contended bool             // Contended was called
	fault     error            // the error of the last request, if its outcome is unknown
}

func (w *waiter) leaveQueue() {
	w.store.notifier.stopAwaiting(w.request.ID)
	if w.part != nil {
		w.part()
	}
}

func (w *waiter) inLine(ctx context.Context) (lease.Grant, error) {
	for ctx.Err() == nil {
		missed := w.store.notifier.missedSignal(w.channel)
		a := w.store.askRow(ctx, w.request)
		w.request.FirstTry = false
		switch {
		case a.Verdict == lease.Granted:
			return a.Grant, nil
		case a.Verdict == lease.Unknown && !a.Unsure():
			return lease.Grant{}, a.Err
		case a.Verdict == lease.Unknown:
			if ctx.Err() == nil { // after the end of ctx, the error would only report that ctx has ended
				w.fault = a.Err
			}
			w.store.cfg.Work.Sleep(ctx, w.retry.Next())
			continue
		}
		w.retry.Reset()
		w.fault = nil
		if !w.contended && a.Verdict == lease.Held {
			w.contended = true
			w.store.cfg.Contended(w.request.Lock, a.Holder)
		}
		if g, ok := w.standInLine(ctx, a, missed); ok {
			return g, nil
		}
	}
	return lease.Grant{}, lease.WaitError(ctx, w.fault)
}

// standInLine waits until a message announces a grant, or until the request must be repeated. missed is closed if a message may have been missed
// since the last request was sent. It is nil if the channel was not subscribed at that time.
func (w *waiter) standInLine(ctx context.Context, a answer, missed <-chan struct{}) (g lease.Grant, ok bool) {
	if w.line == nil {
		w.line, w.part = w.store.notifier.joinLine(w.channel)
	}
	turn := missed
	if turn == nil {
		turn = w.store.notifier.upSignal(w.line)
	}
	timer := time.NewTimer(w.nextTry(a, missed != nil))
	defer timer.Stop()
	select {
	case n := <-w.notified:
		return w.takeGrant(n, a.line)
	case <-turn:
	case <-timer.C:
	case <-ctx.Done():
	case <-w.store.cfg.Work.Life().Done():
	}
	return g, false
}

// nextTry returns the time until the next request if no message arrives. The request must be early enough to keep the place in the queue, and to use
// a grant whose message was lost. A request is also due when the lease that ends first may have expired. Waiters at the front of the queue send this
// request earlier than others.
func (w *waiter) nextTry(a answer, subscribed bool) time.Duration {
	const step, most = 20 * time.Millisecond, time.Second
	often := PatienceInLine / 3
	if !subscribed {
		often = PatienceInLine / 10
	}
	next := often - rand.N(often/5)
	if a.Until.IsZero() || a.line.now == 0 {
		return min(next, 100*time.Millisecond)
	}
	out := time.Duration(lease.ToMicros(a.Until)-a.line.now)*time.Microsecond - (w.store.cfg.Clock() - a.line.since)
	return max(min(next, out+min(time.Duration(a.line.ahead+1)*step, most)), step)
}

// takeGrant returns the grant in a message, so that the waiter can use the grant without a request. Its Sent is the local time of the waiter's last
// request, plus 99 % of the time that has passed since then by Redis's clock. The keeper confirms the lease later. takeGrant returns false if
// replicas must acknowledge the grant, if the request has a Delay, or if the message is implausible. The waiter then repeats its request.
func (w *waiter) takeGrant(n rowGrant, asked inLine) (g lease.Grant, ok bool) {
	passed := time.Duration(n.now-asked.now) * time.Microsecond
	now := w.store.cfg.Clock()
	micros, known := w.store.servers.estimateAt(now)
	if w.store.cfg.AckedReplicas > 0 || w.request.Delay > 0 || asked.now == 0 || passed < 0 ||
		known && (n.now > micros+lease.MinuteMicros || n.token > micros+lease.DayMicros) {
		return g, false
	}
	sent := min(asked.since+passed-passed/100, now)
	g = lease.Grant{Slot: int(n.slot), Token: lease.Token(n.token), Attempt: 1, Expiry: n.expiry, Now: n.now, Known: lease.Known{Floor: n.token, Longest: n.longest},
		Sent: sent, Received: now, RenewAfter: now + confirmAfter - sent, Provisional: true}
	return g, g.Check(w.request) == nil
}
