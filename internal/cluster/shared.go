package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// A Shared is an Operator for many concurrent clients. The clients share each reading of the status, because pages and programs request the status every few
// seconds. An act is completed even if its client disconnects. A Shared is safe for concurrent use.
type Shared struct {
	*Operator
	statuses [RecentRuns + 1]snapshots[Status] // by the number of records per job
}

// NewShared returns a Shared whose Status is at most age old. The first Status after an act is a new reading.
func NewShared(o *Operator, age time.Duration) *Shared {
	s := &Shared{Operator: o}
	for i := range s.statuses {
		s.statuses[i] = snapshots[Status]{age: age, turn: make(chan struct{}, 1)}
	}
	return s
}

// Status returns the same as [Operator.Status]. Callers must not change the lists in it.
func (s *Shared) Status(ctx context.Context, req StatusRequest) (*Status, error) {
	all, err := s.statuses[req.recordsPerJob()].get(ctx, func(ctx context.Context) (*Status, error) { return s.readStatus(ctx, req.recordsPerJob()) })
	if err != nil {
		return nil, err
	}
	return s.chooseStatus(ctx, all, req)
}

// longestAct is the time limit of an act. It suffices for thousands of jobs, and does not delay the end of a replica for long.
const longestAct = 10 * time.Second

// actingContext returns the context of an act, and a function to call at the end of the act. The context does not end with the client's request. Otherwise, a
// client that disconnects could leave half of the jobs paused.
func (s *Shared) actingContext(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestAct)
	return ctx, func() {
		cancel()
		for i := range s.statuses {
			s.statuses[i].invalidate()
		}
	}
}

// Trigger is like [Operator.Trigger], but continues if the client disconnects.
func (s *Shared) Trigger(ctx context.Context, req TriggerRequest) (journal.Request, error) {
	ctx, end := s.actingContext(ctx)
	defer end()
	return s.Operator.Trigger(ctx, req)
}

// Cancel is like [Operator.Cancel], but continues if the client disconnects.
func (s *Shared) Cancel(ctx context.Context, req CancelRequest) ([]CanceledRun, error) {
	ctx, end := s.actingContext(ctx)
	defer end()
	return s.Operator.Cancel(ctx, req)
}

// Pause is like [Operator.Pause], but continues if the client disconnects.
func (s *Shared) Pause(ctx context.Context, req PauseRequest) ([]PausedJob, error) {
	ctx, end := s.actingContext(ctx)
	defer end()
	return s.Operator.Pause(ctx, req)
}

// Resume is like [Operator.Resume], but continues if the client disconnects.
func (s *Shared) Resume(ctx context.Context, req ResumeRequest) ([]PausedJob, error) {
	ctx, end := s.actingContext(ctx)
	defer end()
	return s.Operator.Resume(ctx, req)
}

// snapshots caches the last value that was read.
type snapshots[T any] struct {
	age  time.Duration // maximum age of a cached value
	turn chan struct{} // holds a value while a caller reads

	mu    sync.Mutex
	last  *snapshot[T]
	stale int // number of invalidations; the result of a reading that began before the last invalidation is not cached
}

// A snapshot is the result of a reading, and the time at which the reading ended.
type snapshot[T any] struct {
	at    time.Time
	value *T
	err   error
}

// get returns the cached value if it is young enough. Otherwise, it reads a new one. Callers share the value, and must not change it.
//
// The age counts from the end of a reading. So a reading that ended while the caller waited is young enough, however long it took. Otherwise, callers would
// queue up behind slow readings, and read a slow Redis without a pause.
func (s *snapshots[T]) get(ctx context.Context, read func(context.Context) (*T, error)) (*T, error) {
	came := time.Now()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	last, stale := s.lastAndStale()
	if last != nil && came.Sub(last.at) < s.age {
		return last.value, last.err
	}
	now := &snapshot[T]{}
	now.value, now.err = read(ctx)
	now.at = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil && stale == s.stale { // not cached if the caller has gone, or if an act has changed the value in the meantime
		s.last = now
	}
	return now.value, now.err
}

func (s *snapshots[T]) lastAndStale() (last *snapshot[T], stale int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.stale
}

// invalidate makes the next caller read again.
func (s *snapshots[T]) invalidate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.stale = nil, s.stale+1
}
