package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/journal"
)

// maxFollowed is the number of newest runs that a follower checks. Nobody could read the output of more runs at once.
const maxFollowed = 50

// followAll follows the runs of the job that are in progress, and all that start later.
func (f *follower) followAll(ctx context.Context) error {
	known := map[string]*followedRun{} // nil for runs that are over
	for first := true; ctx.Err() == nil; backoff.Sleep(ctx, f.every) {
		err := f.renewMark(ctx)
		if err == nil {
			err = f.lookAtAll(ctx, known, first)
			first = first && err != nil
		}
		if err := f.tolerateOutage(err); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// lookAtAll passes on the new output of all runs. It ignores runs that had ended at the first check.
func (f *follower) lookAtAll(ctx context.Context, known map[string]*followedRun, first bool) error {
	records, err := f.journal.Runs(ctx, f.job, maxFollowed, false)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return err
	}
	kept := map[string]bool{}
	for _, r := range records {
		kept[r.RunID] = true
		if _, ok := known[r.RunID]; ok || r.Started.IsZero() || isTry(r) {
			continue
		}
		known[r.RunID] = &followedRun{id: r.RunID}
		if first && r.Outcome != journal.OutcomeRunning {
			known[r.RunID] = nil
		}
	}
	for id, r := range known {
		if r == nil {
			if !kept[id] {
				delete(known, id)
			}
			continue
		}
		over, err := f.showOutput(ctx, r)
		if err != nil {
			return err
		}
		if over {
			known[id] = nil
		}
	}
	return nil
}

// isTry reports whether a record belongs to a failed attempt that its run repeated. The output of such an attempt is part of the output of the run.
func isTry(r journal.Record) bool { return strings.HasSuffix(r.RunID, fmt.Sprintf(".%d", r.Attempt)) }
