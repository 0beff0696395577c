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
	failures sync.Map // windows that end now, by length: *snapshots[journal.FailuresFound]
	readers  chan struct{}
}

// NewWindows returns a Windows with at most limit records per answer.
func NewWindows(o *Operator, limit int) *Windows {
	return &Windows{operator: o, limit: limit, newest: snapshots[History]{age: newestAge, turn: make(chan struct{}, 1)}, readers: make(chan struct{}, windowReaders)}
}

// Newest returns the newest records of all jobs, by their end. If there are more than the limit, it returns one more than the limit. Callers share the list,
// and must not change it.
func (w *Windows) Newest(ctx context.Context) ([]journal.Record, error) {
	h, err := w.newest.get(ctx, func(ctx context.Context) (*History, error) {
		return w.operator.History(ctx, HistoryRequest{Limit: w.limit + 1})
	})
	if err != nil {
		return nil, err
	}
	return h.Records, nil
}

// Read returns the records of jobs that overlap a window: runs that began before its end and did not end before its start. Their number is limited as for
// [Windows.Newest]. Read reads one job after the other, and waits while too many other windows are read.
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

// Failures returns the failures of a window like [Operator.Failures], and waits while too many other windows are read. A request without Includes is for all
// jobs, and its window must end now. Callers with such windows of equal length share an answer, and must not change it. So there should be few lengths.
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
	if found == nil { // the caller has gone
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

// NewestFirst returns the newest records by their end, at most most, with runs in progress first. It does not change the list.
func NewestFirst(records []journal.Record, most int) []journal.Record {
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b journal.Record) int {
		return cmp.Or(endOf(b).Compare(endOf(a)), b.When().Compare(a.When()))
	})
	return slices.Clone(records[:min(len(records), most)])
}
