package operator

import (
	"context"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// A Shared is an Operator for many clients at once. They share each reading, because pages and programs request the status of the whole cluster every few
// seconds. An act continues if its client goes. It is safe for concurrent use.
type Shared struct {
	*Operator
	statuses [RecentRuns + 1]snapshots[Status] // by the number of records per job
}

// NewShared returns a Shared whose Status is at most age old. After an act the next Status is a new reading.
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

// longestAct is the time limit of an act: enough for thousands of jobs, and short enough for a replica that is ending.
const longestAct = 10 * time.Second

// actingContext returns the context of an act, and a function that ends it. The context outlives the client's, because otherwise a client that goes could leave half
// of the jobs paused.
func (s *Shared) actingContext(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestAct)
	return ctx, func() {
		cancel()
		for i := range s.statuses {
			s.statuses[i].invalidate()
		}
	}
}

// Trigger is [Operator.Trigger], and continues if the client goes.
func (s *Shared) Trigger(ctx context.Context, req TriggerRequest) (journal.Request, error) {
	ctx, end := s.actingContext(ctx)
	defer end()
	return s.Operator.Trigger(ctx, req)
}

// Cancel is [Operator.Cancel], and continues if the client goes.
func (s *Shared) Cancel(ctx context.Context, req CancelRequest) ([]CanceledRun, error) {
	ctx, end := s.actingContext(ctx)
	defer end()
	return s.Operator.Cancel(ctx, req)
}

// Pause is [Operator.Pause], and continues if the client goes.
func (s *Shared) Pause(ctx context.Context, req PauseRequest) ([]PausedJob, error) {
	ctx, end := s.actingContext(ctx)
	defer end()
	return s.Operator.Pause(ctx, req)
}

// Resume is [Operator.Resume], and continues if the client goes.
func (s *Shared) Resume(ctx context.Context, req ResumeRequest) ([]PausedJob, error) {
	ctx, end := s.actingContext(ctx)
	defer end()
	return s.Operator.Resume(ctx, req)
}

// snapshots caches the value that was read last.
type snapshots[T any] struct {
	age  time.Duration // maximum age of a cached value
	turn chan struct{} // holds a value while a caller reads

	mu    sync.Mutex
	last  *snapshot[T]
	stale int // number of invalidations; a reading that began before the last one is not cached
}

// A snapshot is a value, or the error of reading it, and the end of the reading.
type snapshot[T any] struct {
	at    time.Time
	value *T
	err   error
}

// get returns the cached value if it is young enough, and otherwise reads a new one. Callers share it, and must not change it.
//
// The age counts from the end of a reading. A reading that ended while the caller waited is therefore young enough, however long it took. Otherwise callers
// would queue up behind slow readings, and read a slow Redis without a pause.
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
	if ctx.Err() == nil && stale == s.stale { // otherwise the error concerns only this caller, or an act has changed the value meanwhile
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
