package locking

import (
	"context"
	"errors"
	"time"
)

// Hooks tell of what happens to the locks of a client, for metrics; each may be nil. They are called without any lock of this package held, and may
// be called from several goroutines at once. All but Held and Lost are called by goroutines that others wait for, and must return at once.
type Hooks struct {
	// Waited tells of a grant that was waited for, from the call of [Mutex.Lock], [Mutex.Enter], [Semaphore.Acquire] or [Several.Lock] on. Of a set it
	// is called for each lock. The goroutine is the caller's, before the call returns.
	Waited func(lock string, wait time.Duration)
	// Contended tells that a lock was asked for and another holds it, or is before in the queue: once for each call, however often that
	// asks. The holder is the owner of one of the rows, "" where none is known. Of a set it is the lock that was in the way. The goroutine is
	// the caller's.
	Contended func(lock, holder string)
	// Renewed tells how much of the lease was left to its holder when a renewal came through: with [Lease.Length] at 30s it is about 20s on
	// good days, and what is near zero was nearly lost. The goroutine is the keeper's of a batch of renewals, which waits.
	Renewed func(lock string, left time.Duration)
	// Held tells for how long a lease was held, when it has ended for whatever reason. It has a goroutine of its own.
	Held func(lock string, held time.Duration)
	// Lost tells that a lease was lost, with the cause: it is [ErrLost]. It has a goroutine of its own, that of Held, and comes first.
	Lost func(lock string, cause error)
}

func (h Hooks) waited(lock string, wait time.Duration) {
	if h.Waited != nil {
		h.Waited(lock, wait)
	}
}

func (h Hooks) contended(a Answer, lock string) {
	if h.Contended != nil && a.Verdict == Held {
		h.Contended(lock, a.Holder)
	}
}

func (h Hooks) renewed(lock string, left time.Duration) {
	if h.Renewed != nil {
		h.Renewed(lock, left)
	}
}

// follow has the end of a lease told.
func (h Hooks) follow(l *Lease) {
	if h.Held == nil && h.Lost == nil {
		return
	}
	began := l.client.cfg.Clock()
	context.AfterFunc(l.ctx, func() {
		if cause := context.Cause(l.ctx); h.Lost != nil && errors.Is(cause, ErrLost) {
			h.Lost(l.lock, cause)
		}
		if h.Held != nil {
			h.Held(l.lock, max(l.Deadline()-began, 0))
		}
	})
}
