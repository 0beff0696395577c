package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/cronclave/cronclave/internal/journal"
)

// HistoryRequest says which records to read.
type HistoryRequest struct {
	// Job is whose; "" for all jobs.
	Job string
	// Limit is how many; 0 for all that are kept.
	Limit int
	// Output is whether to read the end of what each run printed.
	Output bool
}

// History is what became of runs and ticks.
type History struct {
	// Records are the newest, newest first. They are never nil.
	Records []journal.Record
	// Damage says which data in Redis could not be read; nil if there is none.
	Damage error
}

// History reads the newest runs, and the ticks that were not run.
func (o *Operator) History(ctx context.Context, req HistoryRequest) (*History, error) {
	records, err := o.journal.Runs(ctx, req.Job, req.Limit, req.Output)
	h := &History{Records: append([]journal.Record{}, records...)}
	switch {
	case errors.Is(err, journal.ErrCorrupt) && len(records) == 0:
		return nil, fmt.Errorf("read the history of namespace %s: %w", o.cfg.Namespace, err)
	case errors.Is(err, journal.ErrCorrupt): // the others are good
		h.Damage = err
	case err != nil:
		return nil, o.historyError(err)
	case len(records) == 0 && req.Job != "":
		return h, o.mustKnow(ctx, req.Job)
	}
	return h, nil
}

// LogsRequest says whose output to read.
type LogsRequest struct {
	Job string
	// Run is the id of one run; "" for the newest runs, at most Limit of them.
	Run   string
	Limit int
}

// Logs reads runs of a job with what they have printed, as far as the history keeps it, newest first.
func (o *Operator) Logs(ctx context.Context, req LogsRequest) ([]journal.Record, error) {
	if err := o.mayHaveLogs(ctx, req.Job, req.Run); err != nil {
		return nil, err
	}
	if req.Run != "" {
		r, err := o.run(ctx, req.Job, req.Run)
		return []journal.Record{r}, err
	}
	all, err := o.journal.Runs(ctx, req.Job, 0, true)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, o.historyError(err)
	}
	runs := []journal.Record{} // never null
	for _, r := range all {
		if !r.Started.IsZero() && len(runs) < req.Limit {
			runs = append(runs, r)
		}
	}
	return runs, nil
}

// mayHaveLogs returns an error for a job that is neither known nor in the history. A run that is named is looked for itself.
func (o *Operator) mayHaveLogs(ctx context.Context, job, run string) error {
	if run != "" {
		return nil
	}
	err := o.mustKnow(ctx, job)
	if err == nil {
		return nil
	}
	if records, _ := o.journal.Runs(ctx, job, 1, false); len(records) > 0 {
		return nil
	}
	return err
}

// run reads a run that must be there.
func (o *Operator) run(ctx context.Context, job, id string) (journal.Record, error) {
	r, ok, err := o.journal.Run(ctx, job, id)
	switch {
	case errors.Is(err, journal.ErrCorrupt):
		return r, err
	case err != nil:
		return r, o.historyError(err)
	case !ok:
		return r, refuse(ErrUnknownRun, "job %s has no run %q in the history", job, id)
	}
	return r, nil
}
