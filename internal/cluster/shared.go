package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// A Shared is an Operator for many concurrent clients. Pages and programs request the status every few seconds, so all clients share each reading of the
// status. An act is completed even if its client disconnects. A Shared is safe for concurrent use.
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

// carryOut completes an act even if its client disconnects. Otherwise, a client that disconnects could leave half of the jobs paused.
func carryOut[Q, R any](ctx context.Context, s *Shared, act func(context.Context, Q) (R, error), req Q) (R, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestAct)
	defer func() {
		cancel()
		for i := range s.statuses {
			s.statuses[i].invalidate()
		}
	}()
	return act(ctx, req)
}

// Trigger is like [Operator.Trigger], but continues if the client disconnects.
func (s *Shared) Trigger(ctx context.Context, req TriggerRequest) ([]Asked, error) {
	return carryOut(ctx, s, s.Operator.Trigger, req)
}

// Cancel is like [Operator.Cancel], but continues if the client disconnects.
func (s *Shared) Cancel(ctx context.Context, req CancelRequest) ([]CanceledRun, error) {
	return carryOut(ctx, s, s.Operator.Cancel, req)
}

// Pause is like [Operator.Pause], but continues if the client disconnects.
func (s *Shared) Pause(ctx context.Context, req PauseRequest) ([]PausedJob, error) {
	return carryOut(ctx, s, s.Operator.Pause, req)
}

// Resume is like [Operator.Resume], but continues if the client disconnects.
func (s *Shared) Resume(ctx context.Context, req ResumeRequest) ([]PausedJob, error) {
	return carryOut(ctx, s, s.Operator.Resume, req)
}

// snapshots caches the last value that was read.
type snapshots[T any] struct {
	age  time.Duration
	turn chan struct{} // of capacity 1; full while a caller reads

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
// The age of a value counts from the end of its reading. So callers that wait for a slow reading share its value. Otherwise, each of them would start another
// slow reading, and Redis would be read without a pause.
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

const (
	// windowReaders is the maximum number of windows that are read in parallel, because each reading covers the whole history of its jobs.
	windowReaders = 2
	// newestAge is the maximum age of the shared list of the newest records.
	newestAge = time.Second
)

// A Windows reads the records of time windows for many viewers at once. It is safe for concurrent use.
type Windows struct {
	operator *Operator
	limit    int
	newest   snapshots[History]
	failures sync.Map // results for windows that end now: the key is the length of the window, the value a *snapshots[journal.FailuresFound]
	readers  chan struct{}
}

// NewWindows returns a Windows with at most limit records per answer.
func NewWindows(o *Operator, limit int) *Windows {
	return &Windows{operator: o, limit: limit, newest: snapshots[History]{age: newestAge, turn: make(chan struct{}, 1)}, readers: make(chan struct{}, windowReaders)}
}

// Newest returns the newest records of all jobs, by their end. If there are more records than the limit, it returns one more than the limit, so that callers
// notice. Callers share the list, and must not change it.
func (w *Windows) Newest(ctx context.Context) ([]journal.Record, error) {
	h, err := w.newest.get(ctx, func(ctx context.Context) (*History, error) {
		return w.operator.History(ctx, HistoryRequest{Limit: w.limit + 1})
	})
	if err != nil {
		return nil, err
	}
	return h.Records, nil
}

// Read returns the records of jobs that overlap a window: the run began before the end of the window, and did not end before its start. Read returns at most
// one record more than the limit, the newest by their end. It reads one job after the other, and waits while too many other windows are read.
func (w *Windows) Read(ctx context.Context, from, until time.Time, includes func(job string) bool) ([]journal.Record, error) {
	done, err := w.awaitReader(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	o := w.operator
	jobs, err := o.journal.RecordedJobs(ctx)
	if err != nil {
		return nil, o.historyError(err)
	}
	var list []journal.Record
	for _, job := range jobs {
		if !includes(job) {
			continue
		}
		all, err := o.journal.Runs(ctx, job, 0, false)
		if err != nil && !errors.Is(err, journal.ErrCorrupt) { // damaged records are left out
			return nil, o.historyError(err)
		}
		list = append(list, slices.DeleteFunc(all, func(r journal.Record) bool { return !overlapsWindow(r, from, until) })...)
		if len(list) > 2*w.limit {
			list = NewestFirst(list, w.limit+1)
		}
	}
	return NewestFirst(list, w.limit+1), nil
}

// Failures returns the failures of a window like [Operator.Failures]. A request with Includes waits while too many other windows are read. A request without
// Includes is for all jobs, and its window must end now. Callers with such windows of equal length share an answer, and must not change it. The answer for each
// length stays in memory, so use few lengths.
func (w *Windows) Failures(ctx context.Context, req journal.FailuresRequest) (journal.FailuresFound, error) {
	if req.Includes == nil {
		return w.newestFailures(ctx, req)
	}
	done, err := w.awaitReader(ctx)
	if err != nil {
		return journal.FailuresFound{}, err
	}
	defer done()
	return w.operator.Failures(ctx, req)
}

func (w *Windows) newestFailures(ctx context.Context, req journal.FailuresRequest) (journal.FailuresFound, error) {
	req.Includes = func(string) bool { return true }
	shared, _ := w.failures.LoadOrStore(req.Until.Sub(req.From), &snapshots[journal.FailuresFound]{age: newestAge, turn: make(chan struct{}, 1)})
	found, err := shared.(*snapshots[journal.FailuresFound]).get(ctx, func(ctx context.Context) (*journal.FailuresFound, error) {
		found, err := w.operator.Failures(ctx, req)
		return &found, err
	})
	if found == nil { // the caller's context ended before a result was read
		return journal.FailuresFound{}, err
	}
	return *found, err
}

// awaitReader waits until the caller may read a window. The caller must call done afterwards.
func (w *Windows) awaitReader(ctx context.Context) (done func(), err error) {
	select {
	case w.readers <- struct{}{}:
		return func() { <-w.readers }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func overlapsWindow(r journal.Record, from, until time.Time) bool {
	return !r.When().After(until) && (r.Outcome == journal.OutcomeRunning || !r.Finished.Before(from))
}

// NewestFirst returns the newest records by their end, at most most. Runs in progress come first. It does not change the argument.
func NewestFirst(records []journal.Record, most int) []journal.Record {
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b journal.Record) int {
		return cmp.Or(endOf(b).Compare(endOf(a)), b.When().Compare(a.When()))
	})
	return slices.Clone(records[:min(len(records), most)])
}
