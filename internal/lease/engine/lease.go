package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// Lease is a hold on one row of a lock. The client's keeper renews it until it is released or lost. It is safe for concurrent use.
type Lease struct {
	client *Client
	row    lease.HeldRow
	attempts

	ctx        context.Context
	end        context.CancelCauseFunc
	endangered signal // lit by watch
	stopping   signal // lit by askToStop
	stopReason string // read after that

	mu sync.Mutex // of the fields below, but for the keeper's
	expiry
	ending
	extended subscribers
	renewed  bool // a renewal was sent: the ticket of the grant is outdated

	renewAt time.Duration // local clock; the keeper's
	index   int           // in the keeper's heap, -1 outside; the keeper's
}

// attempts are the attempts of a lease's work, besides the one that was granted.
type attempts struct {
	attempt  atomic.Int64 // the newest that is acknowledged
	proposed atomic.Int64 // the newest that the server was asked to acknowledge: see NextAttempt
}

// expiry is when a lease ends for its holder.
type expiry struct {
	deadline    time.Duration // local clock
	provisional bool          // see toConfirm; not confirmed yet: too early for a warning
	confirmed   chan struct{} // closed when it is; nil if it was never provisional
	warned      bool
	ofSet       *signal     // that of the set it belongs to; nil if it is by itself
	timer       *time.Timer // runs watch at the warning and at the deadline
}

// ending is the release of a lease.
type ending struct {
	holds     holds
	released  bool      // the server has said so
	givenBack bool      // and its tick is open again
	leftAt    int64     // by the server's clock, when it left an orphan
	giving    bool      // it is being released
	given     sync.Cond // not any more
	doubt     bool      // a release was sent while it was held, and no reply has come
}

// holds counts the holds of a lease that was entered.
type holds struct {
	counted    bool // it was entered: other leases may be released any number of times
	n          int
	unanswered bool // the server did not answer the last release: it may be asked again
}

// subscribers are the functions that are called when a lease was extended.
type subscribers struct {
	calls  map[int]func(deadline time.Duration)
	newest int // key
}

func newLease(c *Client, r *Request, g *lease.Grant) *Lease {
	l := &Lease{client: c, row: lease.HeldRow{Request: *r, Grant: *g}, index: -1}
	l.attempt.Store(g.Attempt)
	l.proposed.Store(g.Attempt)
	l.given.L = &l.mu
	l.ctx, l.end = context.WithCancelCause(context.Background())
	l.deadline = g.Deadline(r.Lease)
	l.renewAt = g.Sent + g.RenewAfter
	switch {
	case g.Provisional:
		l.toConfirm(l.renewAt)
	case g.Left(r.Lease) < r.Lease/4*3: // the answers to earlier requests were lost
		l.toConfirm(g.Sent)
	}
	return l
}

// toConfirm makes the lease of a grant that is a while old, or brief, one that the keeper has to renew before it has its length.
func (l *Lease) toConfirm(at time.Duration) {
	l.provisional, l.confirmed, l.renewAt = true, make(chan struct{}), at
}

// ID is the lease id.
func (l *Lease) ID() string { return l.row.Request.ID }

// Slot is the row that is held, from 0.
func (l *Lease) Slot() int { return l.row.Grant.Slot }

// Token is the fencing token of this grant.
func (l *Lease) Token() Token { return l.row.Grant.Token }

// Length is how long the lease lasts without renewal.
func (l *Lease) Length() time.Duration { return l.row.Request.Lease }

// Context ends before the lease does, or when it is released; context.Cause returns the reason: [ErrLost],
// [ErrReleased], [ErrClosed].
func (l *Lease) Context() context.Context { return l.ctx }

// Endangered is closed when a third of the lease is left because renewals have failed: time to save work. See package locking.
func (l *Lease) Endangered() <-chan struct{} { return l.endangered.look() }

// Confirmed is closed when the lease has its whole length. See package locking.
func (l *Lease) Confirmed() <-chan struct{} {
	if l.confirmed == nil {
		return atOnce
	}
	l.client.keeper.hurry(l)
	return l.confirmed
}

// Remaining is how long the holder may rely on the lease if no renewal comes through; negative once it has ended.
func (l *Lease) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline - l.client.cfg.Clock()
}

// margin is the time left when a renewal comes through. It does not count where the lease has ended, or is only
// confirmed.
func (l *Lease) margin() (left time.Duration, counts bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left = l.deadline - l.client.cfg.Clock()
	return left, left > 0 && !l.provisional && l.ctx.Err() == nil
}

// Deadline is until when the holder may rely on the lease if no renewal comes through: an instant of [Config.Clock], which unless it
// is set is CLOCK_BOOTTIME on Linux, the same for all processes of the machine.
func (l *Lease) Deadline() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// OnExtend has f called with the new deadline after each renewal, in their order, until stop is called; a call that is under way then may end later.
// See package locking.
func (l *Lease) OnExtend(f func(deadline time.Duration)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.extended.calls == nil {
		l.extended.calls = map[int]func(time.Duration){}
	}
	l.extended.newest++
	key := l.extended.newest
	l.extended.calls[key] = f
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.extended.calls, key)
	}
}

// lock is the name of the lock.
func (l *Lease) lock() string { return l.row.Request.Lock }

// renewal is the request to renew the lease.
func (l *Lease) renewal() lease.Renewal {
	return lease.Renewal{Row: &l.row, Attempt: l.proposed.Load()}
}

// goesOut notes that a renewal is sent: from then on the store's answer about the grant is outdated.
func (l *Lease) goesOut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = true
}

// stop ends the lease for its holder, and returns the instant by the local clock, and whether it was held
// until then.
func (l *Lease) stop(why error) (now time.Duration, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	now = l.client.cfg.Clock()
	held = l.ctx.Err() == nil && now < l.deadline
	l.deadline = min(l.deadline, now)
	l.end(why)
	return now, held
}

// extend moves the deadline after a renewal; one that comes too late revives nothing.
func (l *Lease) extend(deadline time.Duration) {
	for _, call := range l.move(deadline) {
		call(deadline)
	}
}

// move moves the deadline and returns the functions to call about it.
func (l *Lease) move(deadline time.Duration) []func(time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.client.cfg.Clock()
	if l.ctx.Err() != nil || deadline <= l.deadline || now >= l.deadline {
		return nil
	}
	if l.deadline = deadline; l.provisional {
		l.provisional = false
		close(l.confirmed)
	}
	l.schedule(now)
	return slices.Collect(maps.Values(l.extended.calls))
}

// schedule sets the timer to the warning or to the deadline. mu is held.
func (l *Lease) schedule(now time.Duration) {
	at := l.deadline
	if !l.warned && !l.provisional {
		at -= l.Length() / 3
	}
	wait := at - now
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.watch)
		return
	}
	l.timer.Reset(wait)
}

// watch warns, and ends the lease at its deadline whatever a renewal in flight says. The keeper calls it too,
// every second, since timers stand still in suspend.
func (l *Lease) watch() {
	if l.ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.client.cfg.Clock()
	if !l.warned && !l.provisional && now >= l.deadline-l.Length()/3 {
		l.warned = true
		l.endangered.light()
		l.ofSet.light()
	}
	if now >= l.deadline {
		l.end(fmt.Errorf("%w: not renewed in time", ErrLost))
		return
	}
	l.schedule(now)
}
