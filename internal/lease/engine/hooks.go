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
	Renewed   func(lock string, left time.Duration)
	Held      func(lock string, held time.Duration)
	Lost      func(lock string, cause error)
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
