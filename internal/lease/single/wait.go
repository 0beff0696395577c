package single

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
)

// PatienceInLine is the time for which a waiter keeps its place without asking again. It asks after each third of it, and without a subscription
// after each tenth: see nextTry. A third must be less than ASKS_AGAIN of acquire.lua, a tenth less than CONFIRM of queue.lua (which release_fast.lua
// repeats), and the whole less than an hour and than the client's Idle.
const PatienceInLine = 5 * time.Second

// An inLine is the answer to a waiter's last request.
type inLine struct {
	since time.Duration // the local clock before it asked
	now   int64         // the server's clock then
	ahead int           // the number of waiters before it
}

// confirmAfter is the time after which a lease that was waited for is confirmed, if it is still held and no caller has asked for that. If a lock is
// held only for a moment, the server is spared the confirmation.
const confirmAfter = 50 * time.Millisecond

// Wait waits in the lock's queue.
func (c *Store) Wait(ctx context.Context, r lease.Request) (lease.Grant, error) {
	w := &waiter{Store: c, request: r, channel: c.notifier.channelFor(r.Lock), notified: c.notifier.awaitGrant(r.ID),
		retry: lease.NewRetry(c.cfg.Timeout)}
	defer w.leaveQueue()
	w.request.Channel = w.channel.wireName()
	return w.inLine(ctx)
}

// A waiter is one call that waits.
type waiter struct {
	*Store
	request   lease.Request
	channel   channel
	notified  <-chan rowGrant
	line      *line // nil before the first wait
	part      func()
	retry     *backoff.Backoff // for requests whose outcome is unknown
	contended bool             // it was reported that another client holds the lock
	fault     error            // the error of the last attempt, if nothing is known after it
}

func (w *waiter) leaveQueue() {
	w.notifier.stopAwaiting(w.request.ID)
	if w.part != nil {
		w.part()
	}
}

func (w *waiter) inLine(ctx context.Context) (lease.Grant, error) {
	for ctx.Err() == nil {
		missed := w.notifier.missedSignal(w.channel)
		a := w.askRow(ctx, w.request)
		w.request.FirstTry = false
		switch {
		case a.Verdict == lease.Granted:
			return a.Grant, nil
		case a.Verdict == lease.Unknown && !a.Unsure():
			return lease.Grant{}, a.Err
		case a.Verdict == lease.Unknown:
			if ctx.Err() == nil { // otherwise the reply is only that ctx has ended
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
		if g, ok := w.standInLine(ctx, a, missed); ok {
			return g, nil
		}
	}
	return lease.Grant{}, lease.WaitError(ctx, w.fault)
}

// standInLine waits until the server announces a grant, or it is time to ask again. missed is closed once a message may have been missed since the last
// request was sent; it is nil if there was no subscription then.
func (w *waiter) standInLine(ctx context.Context, a answer, missed <-chan struct{}) (g lease.Grant, ok bool) {
	if w.line == nil {
		w.line, w.part = w.notifier.joinLine(w.channel)
	}
	turn := missed
	if turn == nil {
		turn = w.notifier.upSignal(w.line)
	}
	timer := time.NewTimer(w.nextTry(a, missed != nil))
	defer timer.Stop()
	select {
	case n := <-w.notified:
		return w.takeGrant(n, a.line)
	case <-turn:
	case <-timer.C:
	case <-ctx.Done():
	case <-w.cfg.Work.Life().Done():
	}
	return g, false
}

// nextTry returns the time until the next request if no message comes: in time to keep the place, and when the first row may have run out. The first
// in line asks first. A waiter that has missed the message of its grant has to ask before that grant runs out.
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

// takeGrant returns the grant that the server has published. It can be used at once: the end of the row counts from this waiter's last request, plus the
// time that has passed since then by the server's clock, less 1 %. The keeper confirms it. If replicas have to acknowledge a grant, or a delay
// follows its end, take returns false, and the waiter asks the server.
func (w *waiter) takeGrant(n rowGrant, asked inLine) (g lease.Grant, ok bool) {
	passed := time.Duration(n.now-asked.now) * time.Microsecond
	now := w.cfg.Clock()
	micros, known := w.servers.estimateAt(now)
	if w.cfg.AckedReplicas > 0 || w.request.Delay > 0 || asked.now == 0 || passed < 0 ||
		known && (n.now > micros+lease.MinuteMicros || n.token > micros+lease.DayMicros) {
		return g, false
	}
	sent := min(asked.since+passed-passed/100, now)
	g = lease.Grant{Slot: int(n.slot), Token: lease.Token(n.token), Attempt: 1, Expiry: n.expiry, Now: n.now, Known: lease.Known{Floor: n.token, Longest: n.longest},
		Sent: sent, Received: now, RenewAfter: now + confirmAfter - sent, Provisional: true}
	return g, g.Check(w.request) == nil
}
