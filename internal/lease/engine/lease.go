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

// A Lease is a hold on one row of a lock. The client's keeper renews it until it is released or lost. It is safe for concurrent use.
type Lease struct {
	client *Client
	row    lease.HeldRow
	attempts

	ctx        context.Context
	end        context.CancelCauseFunc
	endangered signal // closed by watch
	stopping   signal // closed by askToStop
	stopReason string // read after stopping is closed

	mu sync.Mutex // guards the fields below, except the ones of the keeper
	expiry
	ending
	extended subscribers
	renewed  bool // a renewal was sent, so the ticket of the grant is outdated

	renewAt time.Duration // the local clock; belongs to the keeper
	index   int           // the index in the keeper's heap, -1 outside; belongs to the keeper
}

// An attempts has the attempts of a lease's work.
type attempts struct {
	attempt  atomic.Int64 // the newest acknowledged attempt
	proposed atomic.Int64 // the newest attempt that was proposed to the server: see NextAttempt
}

// An expiry is the end of a lease for its holder.
type expiry struct {
	deadline    time.Duration // by the local clock
	provisional bool          // not confirmed yet, see toConfirm: too early for a warning
	confirmed   chan struct{} // closed when the lease is confirmed; nil if it was never provisional
	warned      bool
	ofSet       *signal     // the signal of the set that the lease belongs to; nil if it is by itself
	timer       *time.Timer // runs watch at the warning and at the deadline
}

// An ending is the release of a lease.
type ending struct {
	holds     holds
	released  bool      // the server has confirmed the release
	givenBack bool      // the tick of the lease is open again
	leftAt    int64     // the server's clock when the lease left an orphan
	giving    bool      // it is being released
	given     sync.Cond // signals that giving is false again
	doubt     bool      // a release was sent while the lease was held, and no reply has come
}

// A holds counts the holds of a lease that was entered.
type holds struct {
	counted    bool // the lease was entered; other leases may be released any number of times
	n          int
	unanswered bool // the server did not answer the last release, which may be repeated
}

// A subscribers has the functions that are called when a lease was extended.
type subscribers struct {
	calls  map[int]func(deadline time.Duration)
	newest int // the newest key of calls
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

// toConfirm marks a lease as provisional, because its grant is brief or some time old: the keeper has to renew it at an instant before it has its
// whole length.
func (l *Lease) toConfirm(at time.Duration) {
	l.provisional, l.confirmed, l.renewAt = true, make(chan struct{}), at
}

// ID returns the lease id.
func (l *Lease) ID() string { return l.row.Request.ID }

// Slot returns the row that is held, from 0.
func (l *Lease) Slot() int { return l.row.Grant.Slot }

// Token returns the fencing token of this grant.
func (l *Lease) Token() Token { return l.row.Grant.Token }

// Length returns the length of the lease without renewal.
func (l *Lease) Length() time.Duration { return l.row.Request.Lease }

// Context returns a context that ends before the lease does, or when it is released. context.Cause returns the reason: [ErrLost], [ErrReleased] or
// [ErrClosed].
func (l *Lease) Context() context.Context { return l.ctx }

// Endangered returns a channel that is closed when a third of the lease is left because renewals have failed: time to save work. See package locking.
func (l *Lease) Endangered() <-chan struct{} { return l.endangered.doneChannel() }

// Confirmed returns a channel that is closed when the lease has its whole length. See package locking.
func (l *Lease) Confirmed() <-chan struct{} {
	if l.confirmed == nil {
		return atOnce
	}
	l.client.keeper.renewNow(l)
	return l.confirmed
}

// Remaining returns how long the holder may rely on the lease unless it is renewed; negative once it has ended.
func (l *Lease) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline - l.client.cfg.Clock()
}

// renewalMargin returns the time that is left when a renewal comes through. counts is false if the lease has ended, or the renewal only confirms it.
func (l *Lease) renewalMargin() (left time.Duration, counts bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left = l.deadline - l.client.cfg.Clock()
	return left, left > 0 && !l.provisional && l.ctx.Err() == nil
}

// Deadline returns the instant until which the holder may rely on the lease unless it is renewed, by [Config.Clock]. The default clock is
// CLOCK_BOOTTIME on Linux, the same for all processes of the machine.
func (l *Lease) Deadline() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// OnExtend calls f with the new deadline after each renewal, in order, until stop is called. A call that is under way then may end later. See package
// locking.
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

// lockName returns the name of the lock.
func (l *Lease) lockName() string { return l.row.Request.Lock }

// renewalRequest returns the request to renew the lease.
func (l *Lease) renewalRequest() lease.Renewal {
	return lease.Renewal{Row: &l.row, Attempt: l.proposed.Load()}
}

// goesOut records that a renewal is being sent: from then on the ticket of the grant is outdated.
func (l *Lease) goesOut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = true
}

// endWith ends the lease for its holder. It returns the local clock, and whether the lease was held until then.
func (l *Lease) endWith(why error) (now time.Duration, held bool) {
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

// extendTo moves the deadline after a renewal. A renewal that is too late does not bring the lease back.
func (l *Lease) extendTo(deadline time.Duration) {
	for _, call := range l.moveDeadline(deadline) {
		call(deadline)
	}
}

// moveDeadline moves the deadline and returns the functions to call.
func (l *Lease) moveDeadline(deadline time.Duration) []func(time.Duration) {
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
	l.setTimer(now)
	return slices.Collect(maps.Values(l.extended.calls))
}

// setTimer sets the timer to the warning or to the deadline. The caller holds mu.
func (l *Lease) setTimer(now time.Duration) {
	at := l.deadline
	if !l.warned && !l.provisional {
		at -= l.Length() / 3
	}
	wait := at - now
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.checkDeadline)
		return
	}
	l.timer.Reset(wait)
}

// checkDeadline warns, and ends the lease at its deadline whatever a renewal under way will return. The keeper calls it too, every second, because timers
// stand still in suspend.
func (l *Lease) checkDeadline() {
	if l.ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.client.cfg.Clock()
	if !l.warned && !l.provisional && now >= l.deadline-l.Length()/3 {
		l.warned = true
		l.endangered.setOnce()
		l.ofSet.setOnce()
	}
	if now >= l.deadline {
		l.end(fmt.Errorf("%w: not renewed in time", ErrLost))
		return
	}
	l.setTimer(now)
}
