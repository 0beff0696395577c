package engine

import (
	"context"
	"errors"
	"time"
)

// Hooks report events of a client's locks. See package locking.
type Hooks struct {
	Waited    func(lock string, wait time.Duration)
	Contended func(lock, holder string)
	Renewed   func(lock string, left, length time.Duration)
	Held      func(lock string, held time.Duration)
	Lost      func(lock string, length time.Duration, cause error)
}

func (h Hooks) reportWait(lock string, wait time.Duration) {
	if h.Waited != nil {
		h.Waited(lock, wait)
	}
}

func (h Hooks) reportContention(lock, holder string) {
	if h.Contended != nil {
		h.Contended(lock, holder)
	}
}

func (h Hooks) reportRenewal(l *Lease, left time.Duration) {
	if h.Renewed != nil {
		h.Renewed(l.lockName(), left, l.Length())
	}
}

// reportEnd registers the call of Lost and Held for the end of a lease.
func (h Hooks) reportEnd(l *Lease, clock func() time.Duration) {
	if h.Held == nil && h.Lost == nil {
		return
	}
	began := clock()
	context.AfterFunc(l.ctx, func() {
		if cause := context.Cause(l.ctx); h.Lost != nil && errors.Is(cause, ErrLost) {
			h.Lost(l.lockName(), l.Length(), cause)
		}
		if h.Held != nil {
			h.Held(l.lockName(), max(l.Deadline()-began, 0))
		}
	})
}
