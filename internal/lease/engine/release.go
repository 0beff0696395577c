package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
)

// Release ends the lease: first its context, which must be the end of the work, then its row. See package locking.
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
	r.Doubt = l.doubt && r.Mode == lease.ReleaseEnd && r.Outcome == "" // an earlier plain release does not have the effects of other modes
	answer, err := c.store.ReleaseSoon(context.WithoutCancel(ctx), r, begun)
	l.noteReleased(r, answer, err)
	switch {
	case errors.Is(err, ErrUnknown):
		c.giveUp(r)
		return fmt.Errorf("release %q: %w", l.lockName(), err)
	case err != nil:
		return fmt.Errorf("release %q: %w", l.lockName(), err)
	case answer == lease.ReleasedGone:
		return fmt.Errorf("release %q: %w before", l.lockName(), ErrLost)
	}
	return nil
}

// giveUpHold gives up one hold. If last is true, the caller must release the lease. Other callers then wait until [Lease.noteReleased].
func (l *Lease) giveUpHold() (last bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.giving { // another release is under way; if it succeeds, nothing is left to do
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

// noteReleased records the result of a release.
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

// isFresh reports whether the lease was never renewed.
func (l *Lease) isFresh() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed
}

// Undo releases a lease whose work never began, and reopens its tick. Like [Lease.Release], it gives up one hold of a reentrant lock.
func (l Run) Undo(ctx context.Context) error {
	return l.releaseAs(ctx, lease.ReleaseRequest{Mode: lease.ReleaseUndo})
}

// HandOver ends the lease of a run that another client is to recover. Like [Lease.Release], it must be called after the work has stopped. It frees
// the row and makes the run an orphan, which another client can adopt ([lease.Request.Adopt]). Clients that called [Client.Subscribe] are notified. A
// run whose lease was lost is an orphan already. A lease without a trigger leaves no orphan.
//
// attempt is the last attempt that has begun, from the granted one to [Run.Attempt]. The client that adopts the run gets the next number. Unless the
// lease was lost before, this reuses a number that was acknowledged but whose attempt never began.
func (l Run) HandOver(ctx context.Context, attempt int) error {
	attempt = max(int(l.row.Grant.Attempt), min(attempt, l.Attempt()))
	if err := l.releaseAs(ctx, lease.ReleaseRequest{Mode: lease.ReleaseHandOver, Attempt: attempt}); err != nil {
		return err
	}
	if now, known := l.client.store.Estimate(l.client.cfg.Clock()); known && l.row.Grant.Tick > 0 {
		l.mu.Lock()
		l.leftAt = now
		l.mu.Unlock()
		_ = l.client.Publish(ctx, []*Lease{l.Lease}, nil) // without the event, clients find the orphan when the lease would have expired
	}
	return nil
}
