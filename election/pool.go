package election

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
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

func (entry Entry) lockRequest() lease.Request {
	return lease.Request{Lock: PoolLock(entry.Pool), Slots: cmp.Or(entry.Slots, noSlots), Lease: entry.Lease, AnyLimit: true}
}

// noSlots is an invalid number of slots. It replaces 0 in the request of an [Entry], so that the request is refused. Otherwise 0 would mean the
// default, one slot.
const noSlots = -1

// AcquirePool waits for a slot of a pool until ctx ends. Slots are granted first come, first served. On a quorum, the first request after a release gets the
// slot. While the server does not answer, AcquirePool retries. The returned term is already confirmed: see [Term.Confirmed].
func (e *Elector) AcquirePool(ctx context.Context, entry Entry) (*Term, error) {
	slot, err := e.locks.WaitConfirmed(ctx, entry.lockRequest(), entry.Run)
	if err != nil {
		return nil, fmt.Errorf("acquire a slot of pool %s: %w", entry.Pool, Plain(err))
	}
	return &Term{lease: slot}, nil
}

// TryAcquirePool takes a slot of a pool if one is free and no other client waits for it. ok reports whether it took one.
func (e *Elector) TryAcquirePool(ctx context.Context, entry Entry) (term *Term, ok bool, err error) {
	a := e.locks.TryAcquire(ctx, entry.lockRequest().For(entry.Run))
	switch a.Verdict {
	case lease.Granted:
		return TermOf(a), true, nil
	case lease.Unknown:
		return nil, false, fmt.Errorf("acquire a slot of pool %s: %w", entry.Pool, Plain(a.Err))
	}
	return nil, false, nil
}

// InspectPools returns the held slots of pools, in the field Running of each state. The states do not include waiting clients.
func (e *Elector) InspectPools(ctx context.Context, pools []string) []State {
	requests := make([]InspectRequest, len(pools))
	for i, pool := range pools {
		requests[i].Lock = PoolLock(pool)
	}
	return e.inspectLocks(ctx, requests)
}
