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

// A Lease holds one row of a lock. The client's keeper renews the lease until it is released or lost. Its methods are safe for concurrent use.
type Lease struct {
	client *Client
	row    lease.HeldRow
	attempts

	ctx        context.Context
	end        context.CancelCauseFunc
	endangered signal // set by checkDeadline
	stopping   signal // set by askToStop
	stopReason string // valid once stopping is set

	mu sync.Mutex // guards the fields below, except renewAt and index
	expiry
	ending
	extended subscribers
	renewed  bool // a renewal was sent, which invalidates the ticket of the grant

	renewAt time.Duration // the local time of the next renewal; used only by the keeper
	index   int           // the index in the keeper's heap, or -1; used only by the keeper
}

// An attempts has the attempt numbers of a run.
type attempts struct {
	attempt  atomic.Int64 // the newest acknowledged attempt
	proposed atomic.Int64 // the newest attempt that was proposed to Redis: see NextAttempt
}

// An expiry is the deadline of a lease for its holder, and the timer that enforces it.
type expiry struct {
	deadline    time.Duration // by the local clock
	provisional bool          // not confirmed yet, see toConfirm; no warning is given meanwhile
	confirmed   chan struct{} // closed when the lease is confirmed; nil if the lease was never provisional
	warned      bool
	ofSet       *signal     // the endangered signal of the lease's LeaseSet; nil without one
	timer       *time.Timer // runs checkDeadline at the warning and at the deadline
}

// An ending is the state of a lease's release.
type ending struct {
	holds     holds
	released  bool      // Redis has confirmed the release
	givenBack bool      // the tick of the lease is open again
	leftAt    int64     // Redis's clock when the run was handed over
	giving    bool      // a release is under way
	given     sync.Cond // signals that giving became false
	doubt     bool      // a release was sent while the lease was held, and got no reply
}

// A holds counts how often a reentrant lock was entered and not released.
type holds struct {
	counted    bool // the lease is of a reentrant lock; other leases may be released any number of times
	n          int
	unanswered bool // the last release got no answer and may be repeated
}

// A subscribers has the functions to call when the lease is extended.
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
	case g.Left(r.Lease) < r.Lease/4*3: // the grant is old: the replies to earlier requests were lost
		l.toConfirm(g.Sent)
	}
	return l
}

// toConfirm marks a lease as provisional, because its grant is shortened or old. The lease has its full length after the first renewal, which the
// keeper sends at the instant at.
func (l *Lease) toConfirm(at time.Duration) {
	l.provisional, l.confirmed, l.renewAt = true, make(chan struct{}), at
}

// ID returns the lease id.
func (l *Lease) ID() string { return l.row.Request.ID }

// Slot returns the index of the held row, from 0.
func (l *Lease) Slot() int { return l.row.Grant.Slot }

// Token returns the fencing token of this grant.
func (l *Lease) Token() Token { return l.row.Grant.Token }

// Length returns the length of the lease without renewal.
func (l *Lease) Length() time.Duration { return l.row.Request.Lease }

// Context returns a context that ends before the lease does, or when it is released. context.Cause returns the reason: [ErrLost], [ErrReleased] or
// [ErrClosed].
func (l *Lease) Context() context.Context { return l.ctx }

// Endangered returns a channel that is closed when only a third of the lease is left because renewals have failed. The holder can then save its work.
// See package locking.
func (l *Lease) Endangered() <-chan struct{} { return l.endangered.doneChannel() }

// Confirmed returns a channel that is closed when the lease has its full length. See package locking.
func (l *Lease) Confirmed() <-chan struct{} {
	if l.confirmed == nil {
		return atOnce
	}
	l.client.keeper.renewNow(l)
	return l.confirmed
}

// Remaining returns the time for which the holder may rely on the lease without another renewal. It is negative once the lease has ended.
func (l *Lease) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline - l.client.cfg.Clock()
}

// renewalMargin returns the remaining time of the lease when a renewal succeeds. counts is false if the lease has ended, or if the renewal only
// confirms a provisional lease.
func (l *Lease) renewalMargin() (left time.Duration, counts bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left = l.deadline - l.client.cfg.Clock()
	return left, left > 0 && !l.provisional && l.ctx.Err() == nil
}

// Deadline returns the instant, by [Config.Clock], until which the holder may rely on the lease without another renewal. On Linux the default clock
// is CLOCK_BOOTTIME, which is the same for all processes of the machine.
func (l *Lease) Deadline() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// OnExtend calls f with the new deadline after each renewal, in order, until stop is called. A call of f may still be running when stop returns. See
// package locking.
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

// goesOut records that a renewal is being sent, which invalidates the ticket of the grant.
func (l *Lease) goesOut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = true
}

// endWith ends the lease for its holder. It returns the local time, and reports whether the lease was held until then.
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

// extendTo moves the deadline after a renewal. It does not revive a lease that has ended.
func (l *Lease) extendTo(deadline time.Duration) {
	for _, call := range l.moveDeadline(deadline) {
		call(deadline)
	}
}

// moveDeadline moves the deadline and returns the functions that OnExtend registered.
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

// setTimer sets the timer to the time of the warning, or to the deadline once the warning was given. The caller holds mu.
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

// checkDeadline sets the endangered signal if the deadline is near, and ends the lease at its deadline even if a renewal is under way. The keeper
// also calls it every second, because Go's timers stop while the machine is suspended.
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
