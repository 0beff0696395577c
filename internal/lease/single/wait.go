package single

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
)

// PatienceInLine is how long a waiter keeps its place without asking again. It asks each third of it, without a subscription each tenth: see nextTry. A
// third must be less than ASKS_AGAIN of acquire.lua, a tenth less than CONFIRM of queue.lua (which release_fast.lua repeats), and all of it less than an
// hour and than the client's Idle.
const PatienceInLine = 5 * time.Second

// inLine is the answer to a waiter's last request.
type inLine struct {
	since time.Duration // local clock, before it asked
	now   int64         // the server's clock then
	ahead int           // how many are before it
}

// confirmAfter is when a lease that was waited for is confirmed, if it is still held and no caller asks for that
// before: a lock that is held only for a moment spares the server the confirmation.
const confirmAfter = 50 * time.Millisecond

// Wait waits in the lock's queue.
func (c *Store) Wait(ctx context.Context, r lease.Request) (lease.Grant, error) {
	w := &waiter{Store: c, request: r, channel: c.notifier.channel(r.Lock), notified: c.notifier.await(r.ID),
		retry: lease.NewRetry(c.cfg.Timeout)}
	defer w.leave()
	w.request.Channel = w.channel.wire()
	return w.inLine(ctx)
}

// waiter is one call that waits.
type waiter struct {
	*Store
	request   lease.Request
	channel   channel
	notified  <-chan rowGrant
	line      *line // nil until there is something to wait for
	part      func()
	retry     *backoff.Backoff // of requests whose outcome is unknown
	contended bool             // it was reported that others hold it
	fault     error            // why nothing is known, if that is so
}

func (w *waiter) leave() {
	w.notifier.leave(w.request.ID)
	if w.part != nil {
		w.part()
	}
}

func (w *waiter) inLine(ctx context.Context) (lease.Grant, error) {
	for ctx.Err() == nil {
		missed := w.notifier.missed(w.channel)
		a := w.ask(ctx, w.request)
		w.request.FirstTry = false
		switch {
		case a.Verdict == lease.Granted:
			return a.Grant, nil
		case a.Verdict == lease.Unknown && !a.Unsure():
			return lease.Grant{}, a.Err
		case a.Verdict == lease.Unknown:
			if ctx.Err() == nil { // else the reply says no more
				w.fault = a.Err
			}
			w.cfg.Work.Sleep(ctx, w.retry.Next())
			continue
		}
		w.retry.Reset()
		w.fault = nil
		if !w.contended && a.Verdict == lease.Held {
			w.contended = true
			w.cfg.Contended(w.request.Lock, a.Holder)
		}
		if g, ok := w.stand(ctx, a, missed); ok {
			return g, nil
		}
	}
	return lease.Grant{}, lease.WaitError(ctx, w.fault)
}

// stand waits until the server announces a grant, or it is time to ask again. missed is closed once a message of
// the server may have been missed since the last request was sent; nil if there was no subscription then.
func (w *waiter) stand(ctx context.Context, a answer, missed <-chan struct{}) (g lease.Grant, ok bool) {
	if w.line == nil {
		w.line, w.part = w.notifier.join(w.channel)
	}
	turn := missed
	if turn == nil {
		turn = w.notifier.subscribed(w.line)
	}
	timer := time.NewTimer(w.nextTry(a, missed != nil))
	defer timer.Stop()
	select {
	case n := <-w.notified:
		return w.take(n, a.line)
	case <-turn:
	case <-timer.C:
	case <-ctx.Done():
	case <-w.cfg.Work.Life().Done():
	}
	return g, false
}

// nextTry is when to ask again if no message comes: in time to keep the place, and when the first row may have
// run out. The first in line looks first. A waiter that misses the message of its grant has to ask before the
// grant has run out.
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
	out := time.Duration(clock.ToMicros(a.Until)-a.line.now)*time.Microsecond - (w.cfg.Clock() - a.line.since)
	return max(min(next, out+min(time.Duration(a.line.ahead+1)*step, most)), step)
}

// take is the grant that the server has published. It can be used at once: the row's end is counted from when this
// waiter asked last, plus the time that has passed since then by the server's clock, less 1 %. The keeper confirms it. Where
// replicas have to acknowledge a grant, or a delay follows its end, the server is asked for it instead.
func (w *waiter) take(n rowGrant, asked inLine) (g lease.Grant, ok bool) {
	passed := time.Duration(n.now-asked.now) * time.Microsecond
	now := w.cfg.Clock()
	micros, known := w.servers.estimate(now)
	if w.cfg.AckedReplicas > 0 || w.request.Delay > 0 || asked.now == 0 || passed < 0 ||
		known && (n.now > micros+lease.MinuteMicros || n.token > micros+lease.DayMicros) {
		return g, false
	}
	sent := min(asked.since+passed-passed/100, now)
	g = lease.Grant{Slot: int(n.slot), Token: lease.Token(n.token), Attempt: 1, Expiry: n.expiry, Now: n.now, Known: lease.Known{Floor: n.token, Longest: n.longest},
		Sent: sent, Received: now, RenewAfter: now + confirmAfter - sent, Provisional: true}
	return g, g.Check(w.request) == nil
}
