package locking

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A Token is a fencing token: of two grants of one lock, the later has the greater token. A token is the server's time of the grant in microseconds,
// or the newest token of the lock plus one if that is greater. It is below 2^53.
type Token = lease.Token

// MaxLease is the maximum length of a lease without renewal.
const MaxLease = lease.MaxLease

var (
	// ErrUnknown means that Redis did not answer in time, and may or may not have executed the request.
	ErrUnknown = lease.ErrUnknown
	// ErrRefused is returned with ErrUnknown if a retry would fail, too: Redis refuses the credentials, the user lacks a right, or the key holds
	// something other than a lock.
	ErrRefused = lease.ErrRefused
	// ErrLost is the cause with which a lease's context ends if the lease was not renewed in time, or its slot was granted to another lease.
	ErrLost = lease.ErrLost
	// ErrReleased is the cause with which a lease's context ends when the lease is released.
	ErrReleased = lease.ErrReleased
	// ErrLimit means that the lock is in use with a different number of slots.
	ErrLimit = lease.ErrLimit
	// ErrClosed is returned by a closed client.
	ErrClosed = lease.ErrClosed
	// ErrQuorum is returned by methods that do not work on a quorum, if [Config.Quorum] is set.
	ErrQuorum = lease.ErrQuorum
	// ErrCorrupt means that a key of the lock, or a reply, holds data that no client has written. The error names the key and the field. Other locks are
	// not affected. ErrCorrupt is returned with [ErrUnknown] and [ErrRefused] until a person repairs or deletes the key.
	ErrCorrupt = lease.ErrCorrupt
)

// A Lease is a hold on one slot of a lock. The client renews it until it is released or lost. It is safe for concurrent use.
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
	renewed  bool // a renewal was sent, so the lease is no longer [lease.ReleaseRequest.Fresh]

	renewAt time.Duration // the local time of the next renewal; used only by the keeper
	index   int           // the index in the keeper's heap, or -1; used only by the keeper
}

// An attempts has the attempt numbers of a run.
type attempts struct {
	attempt  atomic.Int64 // the newest acknowledged attempt
	proposed atomic.Int64 // the newest attempt that was proposed to Redis: see run.NextAttempt
}

// An expiry is the deadline of a lease for its holder, and the timer that enforces it.
type expiry struct {
	deadline    time.Duration // by the local clock
	provisional bool          // the lease is not confirmed yet, so there is no warning: see toConfirm
	confirmed   chan struct{} // closed when the lease is confirmed; nil if the lease was never provisional
	warned      bool
	ofSet       *signal     // the endangered signal of the lease's LeaseSet; nil without one
	timer       *time.Timer // runs checkDeadline at the warning and at the deadline
}

// An ending is the state of a lease's release.
type ending struct {
	holds     holds
	released  bool      // Redis has confirmed the release
	givenBack bool      // the release has reopened the tick of the lease
	leftAt    int64     // Redis's clock, in microseconds, when the run was handed over; otherwise 0
	giving    bool      // a release is under way
	given     sync.Cond // signals that giving became false
	doubt     bool      // a release was sent while the lease was held, and got no reply
}

// A holds counts how often a reentrant lock was entered and not released.
type holds struct {
	counted    bool // true for a reentrant lock; leases of other locks may be released any number of times
	n          int
	unanswered bool // the last release got no answer and may be repeated
}

// A subscribers has the functions to call when the lease is extended.
type subscribers struct {
	calls  map[int]func(deadline time.Duration)
	newest int // the newest key of calls
}

func newLease(c *Client, r *lease.Request, g *lease.Grant) *Lease {
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

// toConfirm marks a lease as provisional, because its grant is shortened, or part of the lease has passed already. The lease has its full length
// after the first renewal, which the keeper sends at the local time at.
func (l *Lease) toConfirm(at time.Duration) {
	l.provisional, l.confirmed, l.renewAt = true, make(chan struct{}), at
}

// ID returns the lease id.
func (l *Lease) ID() string { return l.row.Request.ID }

// Slot returns the number of the held slot, from 0.
func (l *Lease) Slot() int { return l.row.Grant.Slot }

// Token returns the fencing token of this grant.
func (l *Lease) Token() Token { return l.row.Grant.Token }

// Length returns the length of the lease without renewal.
func (l *Lease) Length() time.Duration { return l.row.Request.Lease }

// Context returns a context that ends before the lease does, or when the lease is released. context.Cause returns the reason: [ErrLost],
// [ErrReleased] or [ErrClosed].
func (l *Lease) Context() context.Context { return l.ctx }

// Endangered returns a channel that is closed if renewals have failed and only a third of the lease is left, so that the holder can save its work. A
// later renewal may still succeed: only [Lease.Context] shows whether the lease is held.
func (l *Lease) Endangered() <-chan struct{} { return l.endangered.doneChannel() }

// Confirmed returns a channel that is closed when the lease has its whole length. Until its first renewal, a lease is shorter in two cases: after a
// wait it lasts at most one second, and after a late reply only the rest of the lease is left. A caller that needs longer to stop its work waits for
// this channel, or for the end of [Lease.Context], before it begins.
func (l *Lease) Confirmed() <-chan struct{} {
	if l.confirmed == nil {
		return atOnce
	}
	l.client.keeper.renewNow(l)
	return l.confirmed
}

// Remaining returns the time for which the holder may rely on the lease without a renewal. It is negative after the end of the lease.
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

// Deadline returns the instant until which the holder may rely on the lease unless it is renewed, by [Config.Clock]. The default clock is
// CLOCK_BOOTTIME on Linux, the same for all processes of the machine.
func (l *Lease) Deadline() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// OnExtend calls f with the new deadline after each renewal, until stop is called. A call of f that has begun may return after stop. Other renewals of
// the client wait for f, so f must return at once. [Lease.Deadline] returns the deadline before the first call.
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

func (l *Lease) lockName() string { return l.row.Request.Lock }

func (l *Lease) renewalRequest() lease.Renewal {
	return lease.Renewal{Row: &l.row, Attempt: l.proposed.Load()}
}

// goesOut records that a renewal is being sent. From then on, the lease is no longer [lease.ReleaseRequest.Fresh].
func (l *Lease) goesOut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = true
}

// endWith ends the lease for its holder. It returns the local time. held reports whether the lease had not ended before.
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

// moveDeadline moves the deadline if the new one is later and the lease has not ended. It returns the functions that OnExtend registered, or nil if
// the deadline did not move. The caller calls them without holding mu.
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

// Release ends the lease's context and then frees its slot on the server. Call it after the work has ended. It works even if ctx has ended, and takes
// at most twice [Config.Timeout]. [ErrLost] means that the server did not have the lease any more. [ErrUnknown] means that the server did not answer:
// the client then retries in the background until the lease has expired or the client is closed. A second Release is not an error. If the lease has
// several holds (see [Mutex.LockReentrant]), each Release gives up one hold, and the last one ends the lease.
func (l *Lease) Release(ctx context.Context) error { return l.releaseAs(ctx, lease.ReleaseRequest{}) }

// releaseAs ends the lease with the mode and the outcome of r.
func (l *Lease) releaseAs(ctx context.Context, r lease.ReleaseRequest) error {
	if last, err := l.giveUpHold(); !last {
		return err
	}
	c := l.client
	c.keeper.remove(l)
	r.Row, r.Fresh = &l.row, l.isFresh()
	begun, held := l.endWith(ErrReleased)
	r.Held = held
	r.Doubt = l.doubt && r.Mode == lease.ReleaseEnd && r.Outcome == "" // only a plain release is complete once the row is gone; the others have more effects
	answer, err := c.store.ReleaseSoon(context.WithoutCancel(ctx), r, begun)
	l.noteReleased(r, answer, err)
	switch {
	case errors.Is(err, ErrUnknown):
		c.requests.GiveUp(r)
		return fmt.Errorf("release %q: %w", l.lockName(), err)
	case err != nil:
		return fmt.Errorf("release %q: %w", l.lockName(), err)
	case answer == lease.ReleasedGone:
		return fmt.Errorf("release %q: %w before", l.lockName(), ErrLost)
	}
	return nil
}

// giveUpHold gives up one hold. If last is true, the caller must release the lease, and then call [Lease.noteReleased]. Until then, other callers of
// giveUpHold wait.
func (l *Lease) giveUpHold() (last bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.giving { // another release is under way; if that one succeeds, nothing is left to do
		l.given.Wait()
	}
	defer func() { l.giving = last }()
	h := &l.holds
	switch {
	case !h.counted:
		return !l.released, nil
	case h.n > 0:
		h.n--
		if h.n > 0 && l.ctx.Err() != nil {
			err = fmt.Errorf("release %q: %w before", l.lockName(), context.Cause(l.ctx))
		}
		return h.n == 0, err
	case h.unanswered:
		h.unanswered = false
		return true, nil
	}
	return false, fmt.Errorf("release %q more often than it was entered: %w", l.lockName(), ErrReleased)
}

// noteReleased records the result of a release, and wakes the callers that wait in giveUpHold.
func (l *Lease) noteReleased(r lease.ReleaseRequest, answer lease.Released, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && answer != lease.ReleasedGone {
		l.released, l.givenBack = true, r.Mode == lease.ReleaseUndo
	}
	l.holds.unanswered = err != nil
	l.doubt = l.doubt || r.Held && errors.Is(err, ErrUnknown)
	l.giving = false
	l.given.Broadcast()
}

func (l *Lease) isFresh() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed
}

// A signal can be set once, which closes its channel. The channel is made on first use, because most leases end before any goroutine waits for it.
// The zero value is not set.
type signal struct {
	mu   sync.Mutex
	set  bool
	done chan struct{} // nil until first use
}

// setOnce sets the signal. It does nothing for a nil signal.
func (s *signal) setOnce() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.set && s.done != nil {
		close(s.done)
	}
	s.set = true
}

func (s *signal) isSet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set
}

func (s *signal) doneChannel() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.done != nil:
	case s.set:
		s.done = atOnce
	default:
		s.done = make(chan struct{})
	}
	return s.done
}

// atOnce is a closed channel.
var atOnce = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
