package engine

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

// Lease is a hold on one row of a lock. The client's keeper renews it until it is released or lost. It is safe for concurrent use.
type Lease struct {
	client       *Client
	lock, id     string
	slot         int
	token        Token
	length       time.Duration
	tick         int64
	previous     int64
	perTick      int
	firstAttempt int          // the one that was granted
	attempt      atomic.Int64 // the newest that is acknowledged
	proposed     atomic.Int64 // the newest that the server was asked to acknowledge: see NextAttempt
	trigger      string
	memo         string
	adopted      string // the orphan, or ""
	permanent    bool
	slots        int
	delay        time.Duration
	accounted    bool
	granted      granted       // repeated in the events of its end
	received     time.Duration // local clock: not after the grant's reply arrived

	ctx        context.Context
	end        context.CancelCauseFunc
	endangered signal // lit by watch
	stopping   signal // lit by askToStop
	stopReason string // read after that

	mu          sync.Mutex
	deadline    time.Duration // local clock: the lease ends for us
	provisional bool          // see toConfirm; not confirmed yet: too early for a warning
	confirmed   chan struct{} // closed when it is; nil if it was never provisional
	warned      bool
	ofSet       *signal     // that of the set it belongs to; nil if it is by itself
	timer       *time.Timer // runs watch at the warning and at the deadline
	hearers     map[int]func(deadline time.Duration)
	hearer      int // the newest key
	holds       holds
	released    bool      // the server has said so
	givenBack   bool      // and its tick is open again
	leftAt      int64     // by the server's clock, when it left an orphan
	ticket      ticket    // until the first renewal
	giving      bool      // it is being released
	given       sync.Cond // not any more
	doubt       bool      // a release was sent while it was held, and no reply has come

	renewAt time.Duration // local clock; the keeper's
	repair  time.Duration // the keeper's: when to try again to bring it to all nodes of a quorum
	index   int           // in the keeper's heap, -1 outside; the keeper's
}

// holdFor is how much of a lease its holder relies on: less 1 % for clocks of different rates, and 2 ms for timers.
func holdFor(length time.Duration) time.Duration { return length - length/100 - 2*time.Millisecond }

// spreadAfter is when a lease that a majority of a quorum has granted is brought to the others, if it is still held. Where some do not
// answer, it is tried again after pauses that double, up to a third of the lease.
const spreadAfter = 50 * time.Millisecond

// confirmAfter is when a lease that was waited for is confirmed, if it is still held and no caller asks for that
// before: a lock that is held only for a moment spares the server the confirmation.
const confirmAfter = 50 * time.Millisecond

func newLease(c *Client, r Request, got reply) *Lease {
	row := got.row()
	l := &Lease{
		client: c, lock: r.Lock, id: r.ID, slot: int(row.slot), token: Token(row.token), length: r.Lease,
		tick: row.tick, previous: r.Previous(), perTick: r.PerTick(), trigger: r.Trigger, memo: r.Memo, adopted: r.Adopt,
		permanent: r.Permanent, slots: r.Slots, delay: r.Delay, accounted: r.Accounted(), ticket: got.ticket(), received: max(got.received, got.sent),
		index: -1, firstAttempt: int(row.attempt),
	}
	l.attempt.Store(row.attempt)
	l.proposed.Store(row.attempt)
	l.granted = granted{lock: r.Lock, owner: c.cfg.Owner, ledger: lease.JoinPause(got.paused, got.ledger), tick: l.tick, until: row.expiry,
		now: got.now, floor: got.floor, longest: got.longest, low: got.low, permanent: r.Permanent}
	l.given.L = &l.mu
	l.ctx, l.end = context.WithCancelCause(context.Background())
	left := min(l.length, time.Duration(row.expiry-got.now)*time.Microsecond) // the server's clock may have been stepped back
	l.deadline = got.sent + holdFor(left)
	l.renewAt = got.sent + l.renewAfter(left)
	if got.partial {
		l.renewAt, l.repair = min(l.renewAt, got.sent+spreadAfter), 2*spreadAfter
	}
	if left < l.length/4*3 { // the answers to earlier requests were lost
		l.toConfirm(got.sent)
	}
	return l
}

// toConfirm makes the lease of a grant that is a while old, or brief, one that the keeper has to renew before it has its length.
func (l *Lease) toConfirm(at time.Duration) {
	l.provisional, l.confirmed, l.renewAt = true, make(chan struct{}), at
}

// ID is the lease id.
func (l *Lease) ID() string { return l.id }

// Slot is the row that is held, from 0.
func (l *Lease) Slot() int { return l.slot }

// Token is the fencing token of this grant.
func (l *Lease) Token() Token { return l.token }

// Length is how long the lease lasts without renewal.
func (l *Lease) Length() time.Duration { return l.length }

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
	if l.hearers == nil {
		l.hearers = map[int]func(time.Duration){}
	}
	l.hearer++
	key := l.hearer
	l.hearers[key] = f
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.hearers, key)
	}
}

// Release ends the lease: first its context, then, when that work must be over, its row. See package locking.
func (l *Lease) Release(ctx context.Context) error { return l.release(ctx, releaseCall{}) }

// release ends the lease as r says.
func (l *Lease) release(ctx context.Context, r releaseCall) error {
	if last, err := l.leave(); !last {
		return err
	}
	c := l.client
	c.keeper.remove(l)
	r.ticket = l.heldTicket()
	begun, held := l.stop(ErrReleased)
	r.lock, r.id, r.permanent, r.previous, r.perTick = l.lock, l.id, l.permanent, l.previous, l.perTick
	r.slot, r.length, r.accounted, r.held = l.slot, l.length, l.accounted, held
	r.doubt = l.doubt && !r.undo && !r.leaves && r.outcome == "" // these say more than that it is over, and may not have been heard
	verdict, err := c.store.releaseSoon(context.WithoutCancel(ctx), r, begun)
	l.answered(r, verdict, err)
	switch {
	case errors.Is(err, ErrUnknown):
		c.giveUp(r)
		return fmt.Errorf("release %q: %w", l.lock, err)
	case err != nil:
		return fmt.Errorf("release %q: %w", l.lock, err)
	case verdict == "gone":
		return fmt.Errorf("release %q: %w before", l.lock, ErrLost)
	}
	return nil
}

// goesOut notes that a renewal is sent: from then on the store's answer about the grant is outdated.
func (l *Lease) goesOut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ticket = nil
}

// heldTicket is the ticket of a lease that was not renewed yet.
func (l *Lease) heldTicket() ticket {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ticket
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
	for _, hear := range l.move(deadline) {
		hear(deadline)
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
	return slices.Collect(maps.Values(l.hearers))
}

// schedule sets the timer to the warning or to the deadline. mu is held.
func (l *Lease) schedule(now time.Duration) {
	at := l.deadline
	if !l.warned && !l.provisional {
		at -= l.length / 3
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
	if !l.warned && !l.provisional && now >= l.deadline-l.length/3 {
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
