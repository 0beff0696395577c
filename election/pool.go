package election

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// Entry describes a slot of a pool: a semaphore that jobs, and other clients, share across the cluster.
type Entry struct {
	Pool string
	// Slots is how many there are. Where replicas have different numbers each goes by its own: a roll-out that changes it stops no replica.
	Slots int
	// Lease is how long the slot outlives a holder that has died.
	Lease time.Duration
	// Run is the id, without dots, of the run that it is for, so that a status can name the run; "" for none.
	Run string
}

// PoolLock names the lock of a pool, for clients that take its slots by package locking.
func PoolLock(pool string) string { return "{" + pool + "}:pool" }

// PoolOf is the inverse of [PoolLock]; ok is whether that lock is one of a pool.
func PoolOf(lock string) (pool string, ok bool) {
	pool, begins := strings.CutPrefix(lock, "{")
	pool, ends := strings.CutSuffix(pool, "}:pool")
	return pool, begins && ends
}

func (e *Elector) pool(entry Entry) *engine.Semaphore {
	return e.locks.Semaphore(PoolLock(entry.Pool), entry.Slots, engine.WithLease(entry.Lease), engine.WithAnyLimit()).For(entry.Run)
}

// AcquirePool waits for a slot until ctx ends: first come, first served, but on a quorum, where the first request after a release gets it. While the
// server is away it goes on trying. The term has its whole length.
func (e *Elector) AcquirePool(ctx context.Context, entry Entry) (*Term, error) {
	lease, err := e.pool(entry).AcquireConfirmed(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire a slot of pool %s: %w", entry.Pool, Plain(err))
	}
	return &Term{lease: lease}, nil
}

// TryAcquirePool takes a slot if one is free and no other claimant waits; ok is whether it did.
func (e *Elector) TryAcquirePool(ctx context.Context, entry Entry) (term *Term, ok bool, err error) {
	lease, ok, err := e.pool(entry).TryAcquire(ctx)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("acquire a slot of pool %s: %w", entry.Pool, Plain(err))
	case !ok:
		return nil, false, nil
	}
	return &Term{lease: lease}, true, nil
}

// With is the term together with a slot of a pool, for a run that needs both: it ends when either does, and ending it ends both, the slot first.
// Neither is used by itself any more.
func (t *Term) With(slot *Term) *Term {
	return &Term{lease: t.lease, slot: slot, both: engine.LeaseSetOf(t.lease, slot.lease)}
}

// span bounds a term: one lease, or two.
type span interface {
	Context() context.Context
	Endangered() <-chan struct{}
	Remaining() time.Duration
	Length() time.Duration
	Deadline() time.Duration
	OnExtend(f func(deadline time.Duration)) (stop func())
}

func (t *Term) span() span {
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

// ending joins the errors at the ends of a slot and of a lease.
func ending(what string, slot, lease error) error {
	if err := errors.Join(slot, lease); err != nil {
		return fmt.Errorf("%s of term: %w", what, Plain(err))
	}
	return nil
}
