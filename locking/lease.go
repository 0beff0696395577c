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
	granted      granted       // for those who hear of it
	received     time.Duration // local clock: when its grant was heard of, or a little before

	ctx        context.Context
	end        context.CancelCauseFunc
	endangered beacon // lit by watch
	stopping   beacon // lit by askToStop
	stopReason string // read after that

	mu          sync.Mutex
	deadline    time.Duration // local clock: the lease ends for us
	provisional bool          // see toConfirm; not confirmed yet: too early for a warning
	confirmed   chan struct{} // closed when it is; nil if it was never provisional
	warned      bool
	ofSet       *beacon     // that of the set it belongs to; nil if it is by itself
	timer       *time.Timer // runs watch at the warning and at the deadline
	hearers     map[int]func(deadline time.Duration)
	hearer      int // the newest key
	holds       holds
	released    bool      // the server has said so
	givenBack   bool      // and its tick is open again
	leftAt      int64     // by the server's clock, when it left an orphan
	narrow      bool      // of a quorum no more than a majority has been asked for it
	fold        *folded   // what its lock is, if that is folded
	giving      bool      // it is being released
	given       sync.Cond // not any more
	doubt       bool      // a release was sent while it was held, and nothing was heard of that

	renewAt time.Duration // local clock; the keeper's
	repair  time.Duration // the keeper's: when to try again to bring it to all nodes of a quorum
	index   int           // in the keeper's heap, -1 outside; the keeper's
}

// holdFor is how much of a lease its holder relies on: less 1 % for clocks of different rates, and 2 ms for timers.
func holdFor(length time.Duration) time.Duration { return length - length/100 - 2*time.Millisecond }

// spreadAfter is when a lease that a majority of a quorum has granted is brought to the others, if it is still held. Where some do not
// answer, it is tried again after pauses that double, up to a third of the lease.
const spreadAfter = 50 * time.Millisecond

// confirmAfter is when a lease that was waited for is confirmed, if it is still held and nobody asks for it before: who holds a lock for a moment
// only spares the server that.
const confirmAfter = 50 * time.Millisecond

func newLease(c *Client, r Request, got reply) *Lease {
	row := got.row()
	l := &Lease{
		client: c, lock: r.Lock, id: r.ID, slot: int(row.slot), token: Token(row.token), length: r.Lease,
		tick: row.tick, previous: r.previous(), perTick: r.perTick(), trigger: r.Trigger, memo: r.Memo, adopted: r.Adopt,
		permanent: r.Permanent, slots: r.Slots, delay: r.Delay, accounted: r.accounted(), fold: got.fold, received: max(got.received, got.sent),
		index: -1,
	}
	l.firstAttempt = int(row.attempt)
	l.attempt.Store(row.attempt)
	l.proposed.Store(row.attempt)
	l.granted = granted{lock: r.Lock, owner: c.cfg.Owner, ledger: joinPause(got.paused, got.ledger), tick: l.tick, until: row.expiry,
		now: got.now, floor: got.floor, longest: got.longest, low: got.low, permanent: r.Permanent}
	l.given.L = &l.mu
	l.ctx, l.end = context.WithCancelCause(context.Background())
	left := min(l.length, time.Duration(row.expiry-got.now)*time.Microsecond) // the server's clock may have been stepped back
	l.deadline = got.sent + holdFor(left)
	l.renewAt = got.sent + l.renewAfter(left)
	if l.narrow = got.narrow; got.partial {
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

// Attempt is 1, or more for an adopted run, and after [Lease.NextAttempt].
func (l *Lease) Attempt() int { return int(l.attempt.Load()) }

// Tick is the tick that was granted with the lease; zero without one.
func (l *Lease) Tick() time.Time { return fromMicros(l.tick * 1e6) }

// Length is how long the lease lasts without renewal.
func (l *Lease) Length() time.Duration { return l.length }

// Context ends before the lease does, or when it is released; context.Cause tells why: [ErrLost], [ErrReleased], [ErrClosed].
func (l *Lease) Context() context.Context { return l.ctx }

// Endangered is closed when a third of the lease is left because renewals have failed: time to save work.
// A renewal may still come through, so the context tells whether the lease is held.
func (l *Lease) Endangered() <-chan struct{} { return l.endangered.look() }

// Confirmed is closed when the lease has its whole length. One that was waited for begins with a second at most, and one whose grant was
// told late with what is left of it, until the keeper has renewed it: who needs more than that to stop its work waits for this first, or for
// the end of [Lease.Context].
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

// margin is what is left when a renewal comes through. It does not count where the lease has ended, or is only confirmed.
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

// OnExtend has f called with the new deadline after each renewal, in their order, until stop is called; a call that is under way
// then may end later. All renewals wait for f, so it must return at once. Renewals before OnExtend are in [Lease.Deadline].
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

// Release ends the lease: first its context, then, when that work must be over, its row. It is done even if ctx has ended, in
// at most twice [Config.Timeout], one call after the other. [ErrLost] tells that the server did not have it any more; [ErrUnknown] that the server
// did not answer: it is tried again in the background then, until the row has run out by itself or the client closes. To release it again is no error. Of a lease that was entered more than once, see [Mutex.Enter], it gives one hold up,
// and all that only with the last.
func (l *Lease) Release(ctx context.Context) error { return l.release(ctx, releaseCall{}) }

// GiveBack releases a lease whose work was never begun: its tick is open to others again. As Release, it gives up one hold of a lease that
// was entered.
func (l *Lease) GiveBack(ctx context.Context) error { return l.release(ctx, releaseCall{undo: true}) }

// release ends the lease as r says.
func (l *Lease) release(ctx context.Context, r releaseCall) error {
	if last, err := l.leave(); !last {
		return err
	}
	c := l.client
	c.keeper.remove(l)
	narrow, fold := l.form()
	begun, held := l.stop(ErrReleased)
	if held && !r.undo && !r.leaves {
		r.fold, r.token = fold, l.token
	}
	r.lock, r.id, r.permanent, r.previous, r.perTick = l.lock, l.id, l.permanent, l.previous, l.perTick
	r.slot, r.length, r.accounted, r.narrow, r.held = l.slot, l.length, l.accounted, narrow, held
	r.doubt = l.doubt && !r.undo && !r.leaves && r.outcome == "" // these say more than that it is over, and may not have been heard
	verdict, err := c.releaseSoon(context.WithoutCancel(ctx), r, begun)
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

// goesOut notes that a renewal is sent: all nodes of a quorum are told of the lease, and a lock is not folded any more.
func (l *Lease) goesOut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.narrow, l.fold = false, nil
}

// form is whether all nodes of a quorum were told of the lease, and what its lock is if it is folded still.
func (l *Lease) form() (narrow bool, fold *folded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.narrow, l.fold
}

// stop ends the lease for its holder, and tells when by the local clock, and whether it was held until then.
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

// move moves the deadline and returns who is to be told.
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

// releaseCall is what the release script needs.
type releaseCall struct {
	lock, id  string
	permanent bool
	undo      bool // the work never began
	leaves    bool // an orphan, whose attempt is attempt
	previous  int64
	perTick   int
	attempt   int
	outcome   string // as lua/release.lua has it

	slot      int // -1 if it is not known; this and the rest matter on a quorum only
	length    time.Duration
	accounted bool
	narrow    bool

	held  bool    // until it was sent first
	doubt bool    // it was sent before, while the lease was held, and may have been done: that the row is gone tells nothing
	fold  *folded // its lock is folded, as far as is known; only where it was held
	token Token
}

// releasing is the call of a release.
func (c *Client) releasing(r releaseCall) call {
	switch {
	case r.leaves:
		return c.call(c.scripts.release, r.lock, r.id, r.permanent, c.tombstoneLife(), "2", 0, 0, r.attempt)
	case r.outcome != "":
		return c.call(c.scripts.release, r.lock, r.id, r.permanent, c.tombstoneLife(), flag(false), r.previous, r.perTick, 0, r.outcome)
	case !r.undo:
		return c.call(c.scripts.release, r.lock, r.id, r.permanent, c.tombstoneLife())
	}
	return c.call(c.scripts.release, r.lock, r.id, r.permanent, c.tombstoneLife(), flag(true), r.previous, r.perTick)
}

// tombstoneLife is for how long what was sent before may arrive, in microseconds: see not-after.
func (c *Client) tombstoneLife() int64 { return (2*c.cfg.Timeout + time.Second).Microseconds() }

// releaseSoon is release for two time-outs at most, from an instant on that was a moment ago.
func (c *Client) releaseSoon(ctx context.Context, r releaseCall, begun time.Duration) (verdict string, err error) {
	unheard := false
	if r.fold != nil {
		if verdict, err = c.releaseFolded(ctx, r, begun); err == nil && verdict != notFolded {
			return verdict, nil
		}
		unheard = err != nil // it leaves no tombstone that tells
		r.doubt = r.doubt || unheard
	}
	if c.quorum == nil && !unheard { // the first try mostly is the last, and has a time-out of its own
		if verdict, err = c.releaseOnce(ctx, r); err == nil {
			return r.sure(verdict), nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, begun+2*c.cfg.Timeout-c.cfg.Clock())
	defer cancel()
	verdict, err = c.release(ctx, r)
	return r.sure(verdict), err
}

// sure is what a verdict means: a row is gone by an earlier try, if that was sent while the lease was held.
func (r releaseCall) sure(verdict string) string {
	if r.doubt && verdict == "gone" {
		return "released"
	}
	return verdict
}

func (c *Client) releaseOnce(ctx context.Context, r releaseCall) (verdict string, err error) {
	got := c.exec(ctx, []call{c.releasing(r)})[0]
	return got.verdict, got.err
}

// release asks until the server answers or ctx ends.
func (c *Client) release(ctx context.Context, r releaseCall) (verdict string, err error) {
	if c.quorum != nil {
		return c.quorum.release(ctx, r)
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, c.cfg.Timeout) {
		if verdict, err = c.releaseOnce(ctx, r); err == nil || errors.Is(err, ErrRefused) {
			return verdict, err
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-time.After(pause):
		}
	}
}
