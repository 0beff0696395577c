package locking

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Mutex is a lock with one row.
type Mutex struct{ sem Semaphore }

// Semaphore is a lock with a number of rows, so that up to as many leases are held at once. The number is kept
// with the lock for [Config.Idle] after it was used last: asking with another one is [ErrLimit] until then.
type Semaphore struct {
	client  *Client
	request Request
}

// Option changes how a [Mutex] or [Semaphore] acquires.
type Option func(*Request)

// WithLease sets how long a lease lasts without renewal. The default is 30s.
func WithLease(d time.Duration) Option { return func(r *Request) { r.Lease = d } }

// WithDelay keeps a row shut for a while, 1h at most, after its lease ended without a release: see [Request.Delay]. The default is none.
func WithDelay(d time.Duration) Option { return func(r *Request) { r.Delay = d } }

// WithAnyLimit accepts a lock that is in use with another number of slots: see [Request.AnyLimit].
func WithAnyLimit() Option { return func(r *Request) { r.AnyLimit = true } }

// Mutex is the mutex of this name. It makes no call.
func (c *Client) Mutex(name string, options ...Option) *Mutex {
	return &Mutex{*c.Semaphore(name, 1, options...)}
}

const noSlots = -1

// Semaphore is the semaphore of this name, with 1 to 1000 slots. It makes no call.
func (c *Client) Semaphore(name string, slots int, options ...Option) *Semaphore {
	if slots == 0 { // which a Request may leave out
		slots = noSlots
	}
	s := &Semaphore{client: c, request: Request{Lock: name, Slots: slots}}
	for _, o := range options {
		o(&s.request)
	}
	return s
}

// TryLock locks the mutex if nobody holds it; ok tells whether it did. An error means that it can't tell, after trying until ctx
// ended: see [Semaphore.TryAcquire].
func (m *Mutex) TryLock(ctx context.Context) (lease *Lease, ok bool, err error) {
	return m.sem.TryAcquire(ctx)
}

// TryAcquire takes a row if one is free, and not for somebody in line; ok tells whether it did. While the outcome is unknown it asks again with
// the same lease id, until ctx ends, or the lease would have, or the server says [ErrRefused]; then it returns an error that is [ErrUnknown], and what
// the server may have granted is given back in the background. So with a server that is away it lasts as long as ctx allows.
func (s *Semaphore) TryAcquire(ctx context.Context) (lease *Lease, ok bool, err error) {
	a := s.insist(ctx, s.request.withDefaults())
	if a.Verdict == Unknown {
		return nil, false, a.Err
	}
	return a.Lease, a.Verdict == Granted, nil
}

// insist asks until the outcome is known, or can't be.
func (s *Semaphore) insist(ctx context.Context, r Request) Answer {
	a := s.client.Acquire(ctx, r)
	if !errors.Is(a.Err, ErrUnknown) {
		return a // without a timer
	}
	if s.client.begin() {
		defer s.client.background.Done()
	}
	r.firstTry = false
	ctx, cancel := context.WithTimeout(ctx, r.Lease)
	defer cancel()
	for pause := 5 * time.Millisecond; a.Unsure(); pause = min(2*pause, s.client.cfg.Timeout) {
		sleep(ctx, pause/2+rand.N(pause))
		if ctx.Err() != nil {
			a.Err = fmt.Errorf("%w (%w)", a.Err, context.Cause(ctx))
			break
		}
		if again := s.client.Acquire(ctx, r); !again.Unsure() || ctx.Err() == nil { // else that is all it tells
			a = again
		}
	}
	if a.Verdict == Unknown { // also where the last try was refused, or the client has closed: an earlier one may have been granted
		s.client.quit(r)
	}
	return a
}
