package replica

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/web"
)

const (
	// recentRecords is the number of records that are read per job. For most jobs they contain a success. For the other jobs all records are read.
	recentRecords = 5
	// refreshEvery is the interval at which the leader reads the records again, because the replica that counted a run in its metrics may be dead.
	refreshEvery = time.Minute
)

// recallPast adds the past of each job to the metrics, until ctx ends. For a new replica or job this is the time before its start. On the leader it also
// includes runs on other replicas. Without it, an alert on jobs without a success would be silent after each restart.
func (m *monitor) recallPast(ctx context.Context, j *journal.Journal, cfg func() *config.Config, leads func() bool) {
	if m.metrics == nil {
		return
	}
	var last time.Time
	repeatEvery(ctx, cluster.RegisterEvery, func() {
		all := !m.recalled.Swap(true)
		if !all && (!leads() || time.Since(last) < refreshEvery) {
			return
		}
		if err := m.recallAll(ctx, j, enabledNames(cfg()), all); err != nil {
			if all {
				m.recalled.Store(false)
			}
			m.log.Debug("the past of jobs not read yet", "error", err)
			return
		}
		last = time.Now()
	})
}

// recallAll reads the newest records of all jobs. If all is set, and these records of a job contain no success, it reads all records of the job.
func (m *monitor) recallAll(ctx context.Context, j *journal.Journal, jobs []string, all bool) error {
	unclear, err := m.recallFrom(ctx, j, jobs, 250, recentRecords)
	if err == nil && all {
		_, err = m.recallFrom(ctx, j, unclear, 10, 0)
	}
	return err
}

// recallFrom reads the newest records of each job, for atOnce jobs at a time. It returns the jobs whose records contain no success.
func (m *monitor) recallFrom(ctx context.Context, j *journal.Journal, jobs []string, atOnce, records int) (unclear []string, err error) {
	for some := range slices.Chunk(jobs, atOnce) {
		recent, err := j.Recent(ctx, some, records)
		if err != nil && !errors.Is(err, journal.ErrCorrupt) { // the other records are valid
			return nil, err //nolint:wrapcheck // the error names the operation
		}
		for _, job := range some {
			past := pastOf(recent[job])
			if past.OK.IsZero() {
				unclear = append(unclear, job)
			}
			m.metrics.Recall(job, past)
		}
	}
	return unclear, nil
}

// pastOf returns the times of the newest success, the newest failure and the oldest record. The records must be sorted from new to old.
func pastOf(records []journal.Record) (past web.Past) {
	for _, rec := range records {
		switch {
		case rec.Retried:
		case rec.Outcome == journal.OutcomeOK && past.OK.IsZero():
			past.OK = rec.Finished
		case rec.Failed() && past.Failure.IsZero():
			past.Failure = rec.Finished
		}
		if at := rec.When(); !at.IsZero() && (past.Oldest.IsZero() || at.Before(past.Oldest)) {
			past.Oldest = at
		}
	}
	return past
}
