package operator

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
	// windowReaders is how many windows are read at once: each reads the whole history of its jobs.
	windowReaders = 2
	// newestAge is how old the shared list of the newest records may be.
	newestAge = time.Second
)

// Windows reads the records of windows of time for many viewers at once. Its methods may be called by several goroutines.
type Windows struct {
	operator *Operator
	limit    int
	newest   snapshots[History]
	failures sync.Map // of the windows that end now, by their length: *snapshots[journal.FailuresFound]
	readers  chan struct{}
}

// NewWindows has at most limit records in an answer.
func NewWindows(o *Operator, limit int) *Windows {
	return &Windows{operator: o, limit: limit, newest: snapshots[History]{age: newestAge, turn: make(chan struct{}, 1)}, readers: make(chan struct{}, windowReaders)}
}

// Newest returns the newest records of all jobs, by their end: one more than the limit where there are more. Callers share the list, and must not change it.
func (w *Windows) Newest(ctx context.Context) ([]journal.Record, error) {
	h, err := w.newest.get(ctx, func(ctx context.Context) (*History, error) {
		return w.operator.History(ctx, HistoryRequest{Limit: w.limit + 1})
	})
	if err != nil {
		return nil, err
	}
	return h.Records, nil
}

// Read returns the records of jobs that overlap a window, as [Windows.Newest] does: runs that began before its end and did not end before it began. It reads
// one job after the other, and waits while others do so.
func (w *Windows) Read(ctx context.Context, from, until time.Time, includes func(job string) bool) ([]journal.Record, error) {
	done, err := w.begin(ctx)
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
		list = append(list, slices.DeleteFunc(all, func(r journal.Record) bool { return !overlaps(r, from, until) })...)
		if len(list) > 2*w.limit {
			list = NewestFirst(list, w.limit+1)
		}
	}
	return NewestFirst(list, w.limit+1), nil
}

// Failures returns the failures of a window, as [Operator.Failures] does, and waits while others read windows. A request without Includes is for all jobs and
// for a window that ends now: callers share the answer for each length, of which there should be few, and must not change it.
func (w *Windows) Failures(ctx context.Context, req journal.FailuresRequest) (journal.FailuresFound, error) {
	if req.Includes == nil {
		return w.newestFailures(ctx, req)
	}
	done, err := w.begin(ctx)
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

// begin waits until the caller may read a window. The caller calls done after that.
func (w *Windows) begin(ctx context.Context) (done func(), err error) {
	select {
	case w.readers <- struct{}{}:
		return func() { <-w.readers }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func overlaps(r journal.Record, from, until time.Time) bool {
	return !r.When().After(until) && (r.Outcome == journal.OutcomeRunning || !r.Finished.Before(from))
}

// NewestFirst returns records by their end, with the runs that are under way first, and at most so many. Callers may share the records that they pass.
func NewestFirst(records []journal.Record, most int) []journal.Record {
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b journal.Record) int {
		return cmp.Or(endOf(b).Compare(endOf(a)), b.When().Compare(a.When()))
	})
	return slices.Clone(records[:min(len(records), most)])
}
