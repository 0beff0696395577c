package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A Term is a lease that gives the right to run a tick, or to be the leader. It is safe for concurrent use.
type Term struct {
	lease lease.Run
	slot  *Term      // the slot of a pool, or nil: see [Term.With]
	both  lease.Span // the span in which both leases are held; nil without a slot
}

// TermOf returns the term of a granted claim. It returns nil for any other result. Call it once for a result.
func TermOf(r Result) *Term {
	if r.Run == nil {
		return nil
	}
	return &Term{lease: r.Run}
}

// ID returns the id of the claim.
func (t *Term) ID() string { return t.lease.ID() }

// Slot returns the number of the granted slot, from 0.
func (t *Term) Slot() int { return t.lease.Slot() }

// Token returns the fencing token: of two terms of one job or leadership, the later has the greater token.
func (t *Term) Token() int64 { return int64(t.lease.Token()) }

// Attempt returns the attempt number: 1 for the first attempt, and more for a recovery or a retry.
func (t *Term) Attempt() int { return t.lease.Attempt() }

// Context returns a context that ends before the lease expires, or when the term is ended. context.Cause returns the reason.
func (t *Term) Context() context.Context { return t.leaseSpan().Context() }

// Endangered returns a channel that is closed if renewals have failed and only a third of the lease is left.
func (t *Term) Endangered() <-chan struct{} { return t.leaseSpan().Endangered() }

// Confirmed returns a channel that is closed when the term has its whole length. It is closed from the start, unless the reply to the grant arrived
// late: see [locking.Lease.Confirmed].
func (t *Term) Confirmed() <-chan struct{} { return t.lease.Confirmed() }

// Remaining returns the time until the term ends unless it is renewed.
func (t *Term) Remaining() time.Duration { return t.leaseSpan().Remaining() }

// Length returns the length of the term without renewal.
func (t *Term) Length() time.Duration { return t.leaseSpan().Length() }

// Deadline returns the instant at which the term ends unless it is renewed, by [locking.Config.Clock].
func (t *Term) Deadline() time.Duration { return t.leaseSpan().Deadline() }

// OnExtend calls f with the new deadline after each renewal, until stop is called. f must return at once.
func (t *Term) OnExtend(f func(deadline time.Duration)) (stop func()) {
	return t.leaseSpan().OnExtend(f)
}

// End releases the term. Call End only when the work is over, because another run may start at once. [locking.ErrLost] means that the term had
// already ended.
func (t *Term) End(ctx context.Context) error {
	slot := t.endSlot(ctx)
	return joinEndErrors("release", slot, t.lease.Release(ctx))
}

// NextAttempt increments the attempt number of the run, and returns the new number when the server has acknowledged it. The attempt must not begin
// earlier, because a recovery could get the same number. NextAttempt retries until ctx or the lease of the term ends.
func (t *Term) NextAttempt(ctx context.Context) (int, error) {
	n, err := t.lease.NextAttempt(ctx)
	if err != nil {
		return 0, fmt.Errorf("next attempt: %w", Plain(err))
	}
	return n, nil
}

// ReleaseWith is [Term.End] for a job that other jobs run after. well is true if the run succeeded. The server keeps this result for the other jobs:
// see [InspectRequest.Follower].
func (t *Term) ReleaseWith(ctx context.Context, well bool) error {
	slot := t.endSlot(ctx)
	return joinEndErrors("release", slot, t.lease.ReleaseWith(ctx, well))
}

// MarkSucceeded records on the server that the run has succeeded. Call it before the run is recorded and the term ends: if the holder dies before the
// term ends, the replica that finds the orphan records a success and does not recover the run. followed is true if other jobs run after this job.
func (t *Term) MarkSucceeded(ctx context.Context, followed bool) error {
	if err := t.lease.MarkSucceeded(ctx, followed); err != nil {
		return fmt.Errorf("record the success of a run: %w", Plain(err))
	}
	return nil
}

// HandOver ends the term of a run that another replica is to recover. The run becomes an orphan at once. attempt is the number of the last attempt that has
// begun. Call HandOver only when the work is over, like [Term.End].
func (t *Term) HandOver(ctx context.Context, attempt int) error {
	slot := t.endSlot(ctx)
	return joinEndErrors("hand over", slot, t.lease.HandOver(ctx, attempt))
}

// Undo gives back a term whose work never began. Its tick is undecided again. If the term was a recovery, its orphan waits for another recovery.
func (t *Term) Undo(ctx context.Context) error {
	slot := t.endSlot(ctx)
	return joinEndErrors("undo", slot, t.lease.Undo(ctx))
}

// Stopping returns a channel that is closed when the holder is asked to stop its work. [Term.StopReason] returns the reason. The term goes on until
// [Term.End].
func (t *Term) Stopping() <-chan struct{} { return t.lease.Stopping() }

// StopReason returns the reason for which the holder was asked to stop, or "" if it was not asked.
func (t *Term) StopReason() string { return t.lease.StopReason() }

// With combines the term with the slot of a pool, for a run that needs both. The combined term ends when either of them ends. A call of End on the
// combined term ends both terms, the slot first. After the call, t and slot must not be used on their own.
func (t *Term) With(slot *Term) *Term {
	return &Term{lease: t.lease, slot: slot, both: t.lease.Join(slot.lease)}
}

func (t *Term) leaseSpan() lease.Span {
	if t.both != nil {
		return t.both
	}
	return t.lease
}

func (t *Term) endSlot(ctx context.Context) error {
	if t.slot == nil {
		return nil
	}
	return t.slot.End(ctx)
}

func joinEndErrors(what string, slot, lease error) error {
	if err := errors.Join(slot, lease); err != nil {
		return fmt.Errorf("%s the term: %w", what, Plain(err))
	}
	return nil
}
