package election

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// An Entry describes the request for a slot of a pool: a semaphore that jobs, and other clients, share across the cluster.
type Entry struct {
	Pool string
	// Slots is the number of slots. If replicas have different numbers, each uses its own, so that a roll-out that changes it stops no replica.
	Slots int
	// Lease is the time for which the slot outlives a holder that has died.
	Lease time.Duration
	// Run is the id, without dots, of the run that needs the slot, so that a status can name the run; "" for none.
	Run string
}

// PoolLock returns the name of the lock of a pool, for clients that take its slots by package locking.
func PoolLock(pool string) string { return "{" + pool + "}:pool" }

// PoolOf is the inverse of [PoolLock]. ok is false if the lock is not the lock of a pool.
func PoolOf(lock string) (pool string, ok bool) {
	pool, begins := strings.CutPrefix(lock, "{")
	pool, ends := strings.CutSuffix(pool, "}:pool")
	return pool, begins && ends
}

func (e *Elector) poolSemaphore(entry Entry) *engine.Semaphore {
	return e.locks.Semaphore(PoolLock(entry.Pool), entry.Slots, engine.WithLease(entry.Lease), engine.WithAnyLimit()).For(entry.Run)
}

// AcquirePool waits for a slot until ctx ends. Slots are granted first come, first served; on a quorum, the first request after a release is granted.
// While the server is away it goes on trying. The term has its whole length.
func (e *Elector) AcquirePool(ctx context.Context, entry Entry) (*Term, error) {
	lease, err := e.poolSemaphore(entry).AcquireConfirmed(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire a slot of pool %s: %w", entry.Pool, Plain(err))
	}
	return &Term{lease: lease}, nil
}

// TryAcquirePool takes a slot if one is free and no other claimant waits. ok reports whether it did.
func (e *Elector) TryAcquirePool(ctx context.Context, entry Entry) (term *Term, ok bool, err error) {
	lease, ok, err := e.poolSemaphore(entry).TryAcquire(ctx)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("acquire a slot of pool %s: %w", entry.Pool, Plain(err))
	case !ok:
		return nil, false, nil
	}
	return &Term{lease: lease}, true, nil
}

// With returns a term that combines the term with a slot of a pool, for a run that needs both. It ends when either ends, and ending it ends both, the
// slot first. The two must not be used by themselves any more.
func (t *Term) With(slot *Term) *Term {
	return &Term{lease: t.lease, slot: slot, both: engine.LeaseSetOf(t.lease, slot.lease)}
}

// A span is the extent of a term: one lease, or two.
type span interface {
	Context() context.Context
	Endangered() <-chan struct{}
	Remaining() time.Duration
	Length() time.Duration
	Deadline() time.Duration
	OnExtend(f func(deadline time.Duration)) (stop func())
}

func (t *Term) leaseSpan() span {
	if t.both != nil {
		return t.both
	}
	return t.lease
}

// endSlot ends the term's slot of a pool, if it has one.
func (t *Term) endSlot(ctx context.Context) error {
	if t.slot == nil {
		return nil
	}
	return t.slot.End(ctx)
}

// joinEndErrors joins the errors from ending a slot and a lease.
func joinEndErrors(what string, slot, lease error) error {
	if err := errors.Join(slot, lease); err != nil {
		return fmt.Errorf("%s of term: %w", what, Plain(err))
	}
	return nil
}
