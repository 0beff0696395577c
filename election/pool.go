package election

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// An Entry is a request for a slot of a pool. A pool is a semaphore that jobs and other clients share across the cluster.
type Entry struct {
	Pool string
	// Slots is the number of slots. If replicas have different numbers, each replica uses its own, so that no replica is blocked while a change of the
	// number is rolled out.
	Slots int
	// Lease is the time after which the slot of a dead holder is free.
	Lease time.Duration
	// Run is the id of the run that needs the slot, for display in a status. It must not contain dots. "" means no run.
	Run string
}

// PoolLock returns the name of the lock of a pool, for clients that acquire slots of the pool with package locking.
func PoolLock(pool string) string { return "{" + pool + "}:pool" }

// PoolOf returns the pool to which a lock belongs. ok is false if the lock does not belong to a pool.
func PoolOf(lock string) (pool string, ok bool) {
	pool, begins := strings.CutPrefix(lock, "{")
	pool, ends := strings.CutSuffix(pool, "}:pool")
	return pool, begins && ends
}

func (e *Elector) poolSemaphore(entry Entry) *engine.Semaphore {
	return e.locks.Semaphore(PoolLock(entry.Pool), entry.Slots, engine.WithLease(entry.Lease), engine.WithAnyLimit()).For(entry.Run)
}

// AcquirePool waits for a slot of a pool until ctx ends. Slots are granted first come, first served. On a quorum, the first request after a release
// gets the slot. While the server does not answer, AcquirePool retries. The returned term has its whole length.
func (e *Elector) AcquirePool(ctx context.Context, entry Entry) (*Term, error) {
	lease, err := e.poolSemaphore(entry).AcquireConfirmed(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire a slot of pool %s: %w", entry.Pool, Plain(err))
	}
	return &Term{lease: lease}, nil
}

// TryAcquirePool takes a slot of a pool if one is free and no other client waits for it. ok reports whether it took one.
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

// With combines the term with the slot of a pool, for a run that needs both. The combined term ends when either of them ends. Ending the combined
// term ends both, the slot first. After the call, t and slot must not be used on their own.
func (t *Term) With(slot *Term) *Term {
	return &Term{lease: t.lease, slot: slot, both: engine.LeaseSetOf(t.lease, slot.lease)}
}

// A span is the lease of a term, or the set of its two leases.
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

// endSlot releases the pool slot of the term, if the term has one.
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
