package engine

import (
	"context"
	"errors"
	"fmt"
)

// LockReentrant is [Mutex.Lock] for callers that may hold the mutex already (a reentrant lock). See package locking.
func (m *Mutex) LockReentrant(ctx context.Context) (context.Context, *Lease, error) {
	if inner, lease, err := m.reenter(ctx); lease != nil || err != nil {
		return inner, lease, err
	}
	lease, err := m.Lock(ctx)
	if err != nil {
		return ctx, nil, err
	}
	lease.count()
	return lease.carry(ctx), lease, nil
}

// TryLockReentrant is [Mutex.LockReentrant] without waiting, as [Mutex.TryLock] is; ok reports whether this caller holds the
// mutex now.
func (m *Mutex) TryLockReentrant(ctx context.Context) (inner context.Context, lease *Lease, ok bool, err error) {
	if inner, lease, err = m.reenter(ctx); lease != nil || err != nil {
		return inner, lease, lease != nil, err
	}
	lease, ok, err = m.TryLock(ctx)
	if !ok {
		return ctx, nil, false, err
	}
	lease.count()
	return lease.carry(ctx), lease, true, nil
}

// carriedKey is where a context has the lease of a lock: by its key, since "x" and "{x}" are one.
type carriedKey struct {
	client *Client
	key    string
}

// carried is a lease that a context has, and the means to end that context with the lease.
type carried struct {
	lease *Lease
	done  <-chan struct{}
}

// reenter takes one hold more of the lease that ctx carries; it is nil if there is none that is held.
func (m *Mutex) reenter(ctx context.Context) (context.Context, *Lease, error) {
	if ctx.Err() != nil {
		return ctx, nil, fmt.Errorf("enter %q: %w", m.sem.request.Lock, context.Cause(ctx))
	}
	held, ok := ctx.Value(carriedKey{m.sem.client, m.sem.client.key(m.sem.request.Lock)}).(carried)
	switch {
	case !ok || !held.lease.again():
		return ctx, nil, nil
	case ctx.Done() == held.done:
		return ctx, held.lease, nil
	}
	return held.lease.carry(ctx), held.lease, nil
}

// carry derives a context that carries the lease and ends with it.
func (l *Lease) carry(ctx context.Context) context.Context {
	inner, end := context.WithCancelCause(ctx)
	forget := context.AfterFunc(l.ctx, func() { end(context.Cause(l.ctx)) })
	context.AfterFunc(inner, func() { forget() }) // a lease may outlive many contexts
	return context.WithValue(inner, carriedKey{l.client, l.client.key(l.lock)}, carried{l, inner.Done()})
}

// holds counts the holds of a lease that was entered.
type holds struct {
	counted bool // it was entered: other leases may be released any number of times
	n       int
	unheard bool // the server did not answer the last release: it may be asked again
}

// count makes a new lease one of which holds are counted.
func (l *Lease) count() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = holds{counted: true, n: 1}
}

// again takes one hold more, unless the lease has ended or is being released.
func (l *Lease) again() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds.n == 0 || l.ctx.Err() != nil || l.client.cfg.Clock() >= l.deadline {
		return false
	}
	l.holds.n++
	return true
}

// leave gives one hold up; last means that the caller is to release the lease, and that no other caller does so
// until [Lease.answered].
func (l *Lease) leave() (last bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.giving { // that may release it, and then there is nothing left to do
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
			err = fmt.Errorf("release %q: %w before", l.lock, context.Cause(l.ctx))
		}
		return h.n == 0, err
	case h.unheard:
		h.unheard = false
		return true, nil
	}
	return false, fmt.Errorf("release %q more often than it was entered: %w", l.lock, ErrReleased)
}

// answered notes what became of a release.
func (l *Lease) answered(r releaseCall, verdict string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && verdict != "gone" {
		l.released, l.givenBack = true, r.undo
	}
	l.holds.unheard = err != nil
	l.doubt = l.doubt || r.held && errors.Is(err, ErrUnknown)
	l.giving = false
	l.given.Broadcast()
}
