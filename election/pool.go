package election

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/locking"
)

// Entry asks for a slot of a pool: a semaphore that jobs, and whoever else, share across the cluster.
type Entry struct {
	Pool string
	// Slots is how many there are. Where others say another number, each goes by its own: a roll-out that changes it stops nobody.
	Slots int
	// Lease is how long the slot outlives a holder that has died.
	Lease time.Duration
}

// PoolLock names the lock of a pool, for those who take its slots by package locking.
func PoolLock(pool string) string { return "{" + pool + "}:pool" }

// PoolOf is the inverse of [PoolLock]; ok tells whether that lock is one of a pool.
func PoolOf(lock string) (pool string, ok bool) {
	pool, begins := strings.CutPrefix(lock, "{")
	pool, ends := strings.CutSuffix(pool, "}:pool")
	return pool, begins && ends
}

func (e *Elector) pool(entry Entry) *locking.Semaphore {
	return e.locks.Semaphore(PoolLock(entry.Pool), entry.Slots, locking.WithLease(entry.Lease), locking.WithAnyLimit())
}

// Enter waits for a slot until ctx ends: first come, first served, but on a quorum, where whoever asks first after a release has it. While the server is
// away it goes on trying. The term has its whole length.
func (e *Elector) Enter(ctx context.Context, entry Entry) (*Term, error) {
	lease, err := e.pool(entry).AcquireConfirmed(ctx)
	if err != nil {
		return nil, fmt.Errorf("enter pool %s: %w", entry.Pool, Plain(err))
	}
	return &Term{lease: lease}, nil
}

// TryEnter takes a slot if one is free, and not for somebody who waits; ok tells whether it did.
func (e *Elector) TryEnter(ctx context.Context, entry Entry) (term *Term, ok bool, err error) {
	lease, ok, err := e.pool(entry).TryAcquire(ctx)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("enter pool %s: %w", entry.Pool, Plain(err))
	case !ok:
		return nil, false, nil
	}
	return &Term{lease: lease}, true, nil
}

// With is the term together with a slot of a pool, for a run that needs both: it ends when either does, and ending it ends both, the slot first.
// Neither is used by itself any more.
func (t *Term) With(slot *Term) *Term {
	return &Term{lease: t.lease, slot: slot, both: locking.Together(t.lease, slot.lease)}
}

// span is what bounds a term: a lease, or two.
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

// ending joins what was said to the ends of a slot and of a lease.
func ending(what string, slot, lease error) error {
	if err := errors.Join(slot, lease); err != nil {
		return fmt.Errorf("%s of term: %w", what, Plain(err))
	}
	return nil
}
