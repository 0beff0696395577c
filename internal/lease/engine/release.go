package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease/script"
)

// Undo releases a lease whose work was never begun: its tick is open to others again. As Release, it gives up one hold of a lease that
// was entered.
func (l Run) Undo(ctx context.Context) error { return l.release(ctx, releaseCall{undo: true}) }

// HandOver ends the lease of a run that others are to carry on, when its work is over, as for [Lease.Release]: its row makes room, and it is an orphan at
// once, which may be adopted ([Request.Adopt]); clients that [Client.Subscribe] are told. One that is an orphan already, since the lease was lost, stays one. Where
// there is no trigger, or the server has forgotten the run, nothing is left. attempt is the last one that has begun, from the one that was granted to [Run.Attempt]. The client that
// adopts the run has the next one, so a number that was acknowledged and never used is free again, unless the lease had been lost before.
func (l Run) HandOver(ctx context.Context, attempt int) error {
	attempt = max(l.firstAttempt, min(attempt, l.Attempt()))
	if err := l.release(ctx, releaseCall{leaves: true, attempt: attempt}); err != nil {
		return err
	}
	if now, known := l.client.store.estimate(l.client.cfg.Clock()); known && l.tick > 0 {
		l.mu.Lock()
		l.leftAt = now
		l.mu.Unlock()
		_ = l.client.Publish(ctx, []*Lease{l.Lease}, nil) // else they notice when the lease would have ended
	}
	return nil
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

	held   bool // until it was sent first
	doubt  bool // it was sent before, while the lease was held, and may have been done: a missing row proves nothing
	ticket ticket
}

// releasing is the call of a release.
func (c *single) releasing(r releaseCall) call {
	args := script.ReleaseArgs{TombstoneLife: c.tombstoneLife(), Mode: script.ReleaseEnd}
	switch {
	case r.leaves:
		args.Mode, args.Attempt = script.ReleaseHandOver, r.attempt
	case r.outcome != "":
		args.Previous, args.PerTick, args.Outcome = r.previous, r.perTick, r.outcome
	case r.undo:
		args.Mode, args.Previous, args.PerTick = script.ReleaseUndo, r.previous, r.perTick
	}
	return c.call(c.scripts.Release, r.lock, r.id, r.permanent, args.Encode()...)
}

// tombstoneLife is for how long earlier requests may still arrive, in microseconds: see
// not-after.
func (c *Client) tombstoneLife() int64 { return (2*c.cfg.Timeout + time.Second).Microseconds() }

func (c *single) releaseSoon(ctx context.Context, r releaseCall, begun time.Duration) (verdict string, err error) {
	unheard := false
	if fold, ok := r.ticket.(*compact); ok && r.held && !r.undo && !r.leaves {
		if verdict, err = c.releaseCompact(ctx, r, fold, begun); err == nil && verdict != notCompact {
			return verdict, nil
		}
		unheard = err != nil // it leaves no tombstone that would prove it
		r.doubt = r.doubt || unheard
	}
	if !unheard { // the first try mostly is the last, and has a time-out of its own
		if verdict, err = c.releaseOnce(ctx, r); err == nil {
			return r.sure(verdict), nil
		}
	}
	return c.releaseUntil(ctx, r, begun)
}

// releaseUntil is the release for two time-outs from an instant on.
func (c *Client) releaseUntil(ctx context.Context, r releaseCall, begun time.Duration) (verdict string, err error) {
	ctx, cancel := context.WithTimeout(ctx, begun+2*c.cfg.Timeout-c.cfg.Clock())
	defer cancel()
	verdict, err = c.store.release(ctx, r)
	return r.sure(verdict), err
}

// sure is what a verdict means: a row is gone by an earlier try, if that was sent while the lease was held.
func (r releaseCall) sure(verdict string) string {
	if r.doubt && verdict == "gone" {
		return "released"
	}
	return verdict
}

func (c *single) releaseOnce(ctx context.Context, r releaseCall) (verdict string, err error) {
	got := c.exec(ctx, []call{c.releasing(r)})[0]
	return got.verdict, got.err
}

func (c *single) release(ctx context.Context, r releaseCall) (verdict string, err error) {
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
