package operator

import (
	"context"
	"sync/atomic"
	"time"
)

// Shared is an Operator for many callers at once, which share the facts: pages ask for the status of the whole cluster every few seconds, and so do
// programs. Its methods may be called by several goroutines.
type Shared struct {
	*Operator
	statuses snapshots[Status]
}

// NewShared has callers of Status get facts that are up to an age old. After an act they are read anew.
func NewShared(o *Operator, age time.Duration) *Shared {
	return &Shared{o, newSnapshots[Status](age)}
}

// Status does as that of an Operator. Callers must not change the lists that it returns.
func (s *Shared) Status(ctx context.Context, req StatusRequest) (*Status, error) {
	all, err := s.statuses.get(ctx, s.readStatus)
	if err != nil {
		return nil, err
	}
	return s.choose(ctx, all, req)
}

// Cancel does as that of an Operator.
func (s *Shared) Cancel(ctx context.Context, req CancelRequest) ([]CanceledRun, error) {
	defer s.statuses.forget()
	return s.Operator.Cancel(ctx, req)
}

// Pause does as that of an Operator.
func (s *Shared) Pause(ctx context.Context, req PauseRequest) ([]PausedJob, error) {
	defer s.statuses.forget()
	return s.Operator.Pause(ctx, req)
}

// Resume does as that of an Operator.
func (s *Shared) Resume(ctx context.Context, req ResumeRequest) ([]PausedJob, error) {
	defer s.statuses.forget()
	return s.Operator.Resume(ctx, req)
}

// snapshots keep the value that was read last, for a moment.
type snapshots[T any] struct {
	age  time.Duration // of a value that is good enough
	turn chan struct{} // of the one caller that reads
	last *atomic.Pointer[snapshot[T]]
}

// snapshot is the value at an instant, or the error of reading it.
type snapshot[T any] struct {
	at    time.Time
	value *T
	err   error
}

func newSnapshots[T any](age time.Duration) snapshots[T] {
	return snapshots[T]{age, make(chan struct{}, 1), &atomic.Pointer[snapshot[T]]{}}
}

// get returns a value that is young enough, or reads one. Callers share it, and must not change it.
func (s snapshots[T]) get(ctx context.Context, read func(context.Context) (*T, error)) (*T, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if last := s.last.Load(); last != nil && time.Since(last.at) < s.age {
		return last.value, last.err
	}
	now := &snapshot[T]{at: time.Now()}
	if now.value, now.err = read(ctx); ctx.Err() == nil { // else the error is of this caller alone
		s.last.Store(now)
	}
	return now.value, now.err
}

// forget is for after an act.
func (s snapshots[T]) forget() { s.last.Store(nil) }
