package operator

import (
	"context"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// Shared is an Operator for many clients at once, which share the facts: pages ask for the status of the whole cluster every few seconds, and so do
// programs. An act does not end with the client that asks for it. Its methods may be called by several goroutines.
type Shared struct {
	*Operator
	statuses [RecentRuns + 1]snapshots[Status] // by the number of records of each job
}

// NewShared has callers of Status get facts that are up to an age old. After an act they are read anew.
func NewShared(o *Operator, age time.Duration) *Shared {
	s := &Shared{Operator: o}
	for i := range s.statuses {
		s.statuses[i] = snapshots[Status]{age: age, turn: make(chan struct{}, 1)}
	}
	return s
}

// Status does as that of an Operator. Callers must not change the lists that it returns.
func (s *Shared) Status(ctx context.Context, req StatusRequest) (*Status, error) {
	all, err := s.statuses[req.records()].get(ctx, func(ctx context.Context) (*Status, error) { return s.readStatus(ctx, req.records()) })
	if err != nil {
		return nil, err
	}
	return s.choose(ctx, all, req)
}

// longestAct is more than an act takes for thousands of jobs, and short enough for a replica that ends meanwhile.
const longestAct = 10 * time.Second

// acting returns the context of an act, and a function that ends it: else a client that goes would leave half of the jobs paused.
func (s *Shared) acting(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestAct)
	return ctx, func() {
		cancel()
		for i := range s.statuses {
			s.statuses[i].invalidate()
		}
	}
}

// Trigger does as that of an Operator.
func (s *Shared) Trigger(ctx context.Context, req TriggerRequest) (journal.Request, error) {
	ctx, end := s.acting(ctx)
	defer end()
	return s.Operator.Trigger(ctx, req)
}

// Cancel does as that of an Operator.
func (s *Shared) Cancel(ctx context.Context, req CancelRequest) ([]CanceledRun, error) {
	ctx, end := s.acting(ctx)
	defer end()
	return s.Operator.Cancel(ctx, req)
}

// Pause does as that of an Operator.
func (s *Shared) Pause(ctx context.Context, req PauseRequest) ([]PausedJob, error) {
	ctx, end := s.acting(ctx)
	defer end()
	return s.Operator.Pause(ctx, req)
}

// Resume does as that of an Operator.
func (s *Shared) Resume(ctx context.Context, req ResumeRequest) ([]PausedJob, error) {
	ctx, end := s.acting(ctx)
	defer end()
	return s.Operator.Resume(ctx, req)
}

// snapshots keep the value that was read last, for a moment.
type snapshots[T any] struct {
	age  time.Duration // of a value that is good enough
	turn chan struct{} // of the one caller that reads

	mu    sync.Mutex
	last  *snapshot[T]
	stale int // how often it was invalidated: a reading that began before is not kept
}

// snapshot is the value that was read until an instant, or the error of reading it.
type snapshot[T any] struct {
	at    time.Time
	value *T
	err   error
}

// get returns a value that is young enough, or reads one. Callers share it, and must not change it.
//
// The age counts from the end of a reading: one that ended while the caller waited for its turn is young enough, however long it took. Else callers would
// queue up behind slow readings, and a Redis that is slow would be read without a pause.
func (s *snapshots[T]) get(ctx context.Context, read func(context.Context) (*T, error)) (*T, error) {
	came := time.Now()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	last, stale := s.state()
	if last != nil && came.Sub(last.at) < s.age {
		return last.value, last.err
	}
	now := &snapshot[T]{}
	now.value, now.err = read(ctx)
	now.at = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil && stale == s.stale { // else the error is of this caller alone, or an act has changed the value meanwhile
		s.last = now
	}
	return now.value, now.err
}

func (s *snapshots[T]) state() (last *snapshot[T], stale int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.stale
}

// invalidate has later callers read anew.
func (s *snapshots[T]) invalidate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.stale = nil, s.stale+1
}
