package locking

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A Mutex is a lock with one slot.
type Mutex struct{ sem Semaphore }

// A Semaphore is a lock with several slots. Each slot may be held by one lease. Redis keeps the number of slots until [Config.Idle] after the last
// use of the lock. Until then, a request with a different number is refused with [ErrLimit].
type Semaphore struct {
	client  *Client
	request lease.Request
}

// An Option changes how a [Mutex], a [Semaphore] or a [MultiLock] acquires.
type Option func(*terms)

// A terms has the fields of a [lease.Request] that options can change. The lock's queue stores these fields for each waiter, so a new option must
// also be added to the queue.
type terms struct {
	lease, delay time.Duration
	anyLimit     bool
}

// WithLease sets the length of a lease without renewal. The default is 30s.
func WithLease(d time.Duration) Option { return func(t *terms) { t.lease = d } }

// WithDelay keeps a slot closed for d, at most 1h, after its lease ended without a release, so that late writes of a paused holder arrive before the
// next holder begins. The default is no delay.
func WithDelay(d time.Duration) Option { return func(t *terms) { t.delay = d } }

// WithAnyLimit accepts a lock that is in use with a different number of slots. A grant then changes that number. A [MultiLock] does not allow it.
func WithAnyLimit() Option { return func(t *terms) { t.anyLimit = true } }

func termsOf(options []Option) (t terms) {
	for _, o := range options {
		o(&t)
	}
	return t
}

// Mutex returns the mutex with this name. It does not call Redis.
func (c *Client) Mutex(name string, options ...Option) *Mutex {
	return &Mutex{*c.Semaphore(name, 1, options...)}
}

const noSlots = -1

// Semaphore returns the semaphore with this name, with 1 to 1000 slots. It does not call Redis.
func (c *Client) Semaphore(name string, slots int, options ...Option) *Semaphore {
	if slots == 0 { // a Request takes 0 for the default, but refuses noSlots
		slots = noSlots
	}
	t := termsOf(options)
	return &Semaphore{client: c, request: lease.Request{Lock: name, Slots: slots, Lease: t.lease, Delay: t.delay, AnyLimit: t.anyLimit}}
}

// TryLock locks the mutex if it is free. ok reports whether the mutex was locked. After an error the outcome is unknown: see [Semaphore.TryAcquire].
func (m *Mutex) TryLock(ctx context.Context) (lease *Lease, ok bool, err error) {
	return m.sem.TryAcquire(ctx)
}

// TryAcquire takes a slot if one is free and no waiter is in line for it. ok reports whether it took one. If the server does not answer, TryAcquire
// retries with the same lease id until ctx ends, [Config.Timeout] has passed (twice that on a quorum), or the server refuses the request
// ([ErrRefused]). Then it returns [ErrUnknown], and the client releases in the background what the server may have granted. To wait for a server that
// does not answer, use [Semaphore.Acquire].
func (s *Semaphore) TryAcquire(ctx context.Context) (held *Lease, ok bool, err error) {
	a := s.client.requests.TryAcquire(ctx, s.request.For(""))
	if a.Verdict == lease.Unknown {
		return nil, false, a.Err
	}
	return leaseOf(a.Run), a.Run != nil, nil
}

// Lock waits until the caller holds the mutex or ctx ends. Callers are served first come, first served: see [Semaphore.Acquire].
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.sem.Acquire(ctx) }

// Acquire waits for a slot in the lock's queue. A release hands its slot to the first waiter in the queue, and notifies only that waiter. A waiter
// whose process died is dropped from the queue after some seconds. While the server does not answer, Acquire retries. It returns at once if the
// server refuses the request ([ErrRefused]).
//
// If ctx has ended, the error wraps the cause of ctx, and also [ErrUnknown] if the server did not answer. The client removes the caller from the
// queue, in the background if the server does not answer, and the caller never holds a slot. After a wait, the lease may have a length of only one
// second until [Lease.Confirmed] is closed.
//
// On a quorum there is no queue. Acquire polls with random pauses, so the caller that has waited longest is not always next.
func (s *Semaphore) Acquire(ctx context.Context) (*Lease, error) {
	l, err := s.client.requests.Wait(ctx, s.request.For(""))
	return leaseOf(l), err
}

// AcquireConfirmed is [Semaphore.Acquire] for work that takes time to stop: it returns the lease only when the lease has its whole length. If a lease
// is lost before that, AcquireConfirmed waits for another lease. ctx may have ended when AcquireConfirmed returns a lease.
func (s *Semaphore) AcquireConfirmed(ctx context.Context) (*Lease, error) {
	l, err := s.client.requests.WaitConfirmed(ctx, s.request, "")
	return leaseOf(l), err
}

// LockReentrant is [Mutex.Lock] for callers that may hold the mutex already (a reentrant lock). If ctx carries a lease of this mutex and this client
// that is still held, LockReentrant returns that lease, with its token and one more hold. Otherwise LockReentrant waits for a new lease. Each
// successful LockReentrant needs one [Lease.Release], in any order. The last Release ends the lease, and any further Release returns [ErrReleased].
//
// The returned context carries the lease. It is derived from ctx, and ends a moment after the lease's own context, with the same cause. Use it for
// the work, and pass it to called functions. All goroutines that have this context hold the lock, and they do not exclude each other. If a goroutine
// may outlive the hold of the caller that starts it, the caller calls LockReentrant once more for that goroutine.
//
// LockReentrant never returns a lost lease. The context of a lost lease has ended, so a call with that context returns [ErrLost]. A call with a
// context that did not end ([context.WithoutCancel]) gets a new lease with a greater token and one hold. If LockReentrant fails, it returns ctx
// itself.
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

// Name returns the name of a fine-grained lock, such as a lock for each order: Name("orders", "17") is "orders:17". Different arguments give
// different names, because colons, braces, percent signs and control characters are percent-encoded, such as %3A for a colon. The kind must not be
// empty.
//
// On a Redis Cluster, the whole name determines the node, so the locks of a kind spread over all nodes. For the locks of a [Client.MultiLock], which
// must be on one node, use [Tagged].
//
// Two callers that take two locks one by one, in different orders, can deadlock. To prevent that, all callers must take the smaller name first, in
// the order of [slices.Sort]. [Client.MultiLock] cannot deadlock, because it holds no lock while it waits.
func Name(kind string, ids ...string) string {
	return strings.Join(escapeParts(append([]string{kind}, ids...)), ":")
}

// Tagged is [Name] with the kind as the hash tag: Tagged("orders", "17") is "{orders}:17". All locks of the kind are then on one node of a Redis
// Cluster, as [Client.MultiLock] requires.
func Tagged(kind string, ids ...string) string {
	parts := escapeParts(append([]string{kind}, ids...))
	for i, id := range parts[1:] {
		if slices.Contains(lease.KeyParts, id) { // "{orders}:queue" is a key of the lock "{orders}"
			parts[i+1] = percentEncode(id[0]) + id[1:]
		}
	}
	parts[0] = "{" + parts[0] + "}"
	return strings.Join(parts, ":")
}

// escapeParts percent-encodes control characters, and the characters with a meaning in names: colons, braces and percent signs.
func escapeParts(parts []string) []string {
	out := make([]string, len(parts))
	for i, part := range parts {
		var b strings.Builder
		for _, c := range []byte(part) {
			if c < ' ' || c == 0x7f || strings.IndexByte("%:{}", c) >= 0 {
				b.WriteString(percentEncode(c))
			} else {
				b.WriteByte(c)
			}
		}
		out[i] = b.String()
	}
	return out
}

func percentEncode(c byte) string { return fmt.Sprintf("%%%02X", c) }
