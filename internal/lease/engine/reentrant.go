package engine

import (
	"context"
	"fmt"
)

// LockReentrant is [Mutex.Lock] for callers that may hold the mutex already (a reentrant lock). See package locking.
func (m *Mutex) LockReentrant(ctx context.Context) (context.Context, *Lease, error) {
	if inner, lease, err := m.reenterHeld(ctx); lease != nil || err != nil {
		return inner, lease, err
	}
	lease, err := m.Lock(ctx)
	if err != nil {
		return ctx, nil, err
	}
	lease.countHolds()
	return lease.carryIn(ctx), lease, nil
}

// TryLockReentrant is [Mutex.LockReentrant] without waiting, like [Mutex.TryLock]. ok reports whether this caller holds the mutex now.
func (m *Mutex) TryLockReentrant(ctx context.Context) (inner context.Context, lease *Lease, ok bool, err error) {
	if inner, lease, err = m.reenterHeld(ctx); lease != nil || err != nil {
		return inner, lease, lease != nil, err
	}
	lease, ok, err = m.TryLock(ctx)
	if !ok {
		return ctx, nil, false, err
	}
	lease.countHolds()
	return lease.carryIn(ctx), lease, true, nil
}

// A carriedKey is the context key for the lease of a lock. It has the Redis key of the lock instead of the name, because "x" and "{x}" are the same
// lock.
type carriedKey struct {
	client *Client
	key    string
}

// A carried is a lease in a context, and the Done channel of that context.
type carried struct {
	lease *Lease
	done  <-chan struct{}
}

// reenterHeld takes one more hold of the lease that ctx carries. It returns a nil lease if ctx carries no held lease of this mutex.
func (m *Mutex) reenterHeld(ctx context.Context) (context.Context, *Lease, error) {
	if ctx.Err() != nil {
		return ctx, nil, fmt.Errorf("lock %q: %w", m.sem.request.Lock, context.Cause(ctx))
	}
	held, ok := ctx.Value(carriedKey{m.sem.client, m.sem.client.lockKey(m.sem.request.Lock)}).(carried)
	switch {
	case !ok || !held.lease.addHold():
		return ctx, nil, nil
	case ctx.Done() == held.done:
		return ctx, held.lease, nil
	}
	return held.lease.carryIn(ctx), held.lease, nil
}

// carryIn derives a context that carries the lease and ends with it.
func (l *Lease) carryIn(ctx context.Context) context.Context {
	inner, end := context.WithCancelCause(ctx)
	forget := context.AfterFunc(l.ctx, func() { end(context.Cause(l.ctx)) })
	context.AfterFunc(inner, func() { forget() }) // remove the callback from the lease, which may outlive many contexts
	return context.WithValue(inner, carriedKey{l.client, l.client.lockKey(l.lockName())}, carried{l, inner.Done()})
}

// countHolds makes a new lease count its holds.
func (l *Lease) countHolds() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = holds{counted: true, n: 1}
}

// addHold takes one more hold, unless the lease has ended or is being released.
func (l *Lease) addHold() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds.n == 0 || l.ctx.Err() != nil || l.client.cfg.Clock() >= l.deadline {
		return false
	}
	l.holds.n++
	return true
}
