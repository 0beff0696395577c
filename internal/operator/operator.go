// Package operator shows and controls a cluster from outside: it reads the status, the history and the output of runs, and it triggers, cancels, pauses and
// resumes. It needs only Redis, and no replica's configuration, so that the command line and an HTTP server can be thin layers above it. Replicas use its
// comparison of configurations, clocks and names in the registry.
package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Config configures an [Operator].
type Config struct {
	// Conn is the cluster's Redis, and Journal the history in it. The caller closes both.
	Conn    *redisconn.Conn
	Journal *journal.Journal
	// Namespace is the cluster's name in Redis.
	Namespace string
	// Jobs are the jobs of a local configuration, which replicas may not have described yet. May be nil.
	Jobs []ConfiguredJob
	// Incomplete is set if Jobs lacks jobs of a configuration that cannot be read. A job is then unknown only if the history has no runs of it either.
	Incomplete bool
	// Zones returns the time zones for showing times and computing ticks; nil for the built-in ones.
	Zones func() *cronspec.Zones
	// OnAct is called before each act; may be nil.
	OnAct func(journal.Act)
}

// A ConfiguredJob is a job of a local configuration, with what a selection needs.
type ConfiguredJob struct {
	Name string
	Tags []string
}

// An Operator shows and controls one cluster. It is safe for concurrent use.
type Operator struct {
	cfg     Config
	locks   *locking.Client
	elector *election.Elector
	journal *journal.Journal
}

// New returns an Operator. It sends nothing. [Operator.Close] releases its resources.
func New(cfg Config) (*Operator, error) {
	locks, err := locking.New(cfg.Conn.LockConfig(cfg.Namespace, "operator"))
	if err != nil {
		return nil, err
	}
	elector, err := election.New(election.Config{Locks: locks})
	if err != nil {
		return nil, errors.Join(err, locks.Close())
	}
	return &Operator{cfg, locks, elector, cfg.Journal}, nil
}

// Close stops the Operator's background work.
func (o *Operator) Close() error { return o.locks.Close() }

// Zones returns the time zones for showing times and computing ticks.
func (o *Operator) Zones() *cronspec.Zones {
	if o.cfg.Zones == nil {
		return nil
	}
	return o.cfg.Zones()
}

// Now returns the time by the clock of Redis.
func (o *Operator) Now(ctx context.Context) (time.Time, error) {
	now, err := o.locks.ServerTime(ctx)
	if err != nil {
		return now, unavailableError("read the clock of Redis", err)
	}
	return now, nil
}

// describedJobs reads the jobs that replicas have described. Damaged descriptions are left out.
func (o *Operator) describedJobs(ctx context.Context) ([]journal.JobInfo, error) {
	infos, err := o.journal.Jobs(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, unavailableError("list the jobs of namespace "+o.cfg.Namespace, err)
	}
	return infos, nil
}

// findJob returns the description of a job; ok is false if there is none.
func findJob(infos []journal.JobInfo, job string) (info journal.JobInfo, ok bool) {
	i := slices.IndexFunc(infos, func(info journal.JobInfo) bool { return info.Name == job })
	if i < 0 {
		return info, false
	}
	return infos[i], true
}

// mustKnow returns an error for a job that is neither in the local configuration nor on a replica.
func (o *Operator) mustKnow(ctx context.Context, job string) error {
	infos, err := o.describedJobs(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, j := range o.cfg.Jobs {
		names = append(names, j.Name)
	}
	for _, info := range infos {
		names = append(names, info.Name)
	}
	if slices.Contains(names, job) {
		return nil
	}
	// Removed jobs only serve as suggestions, unless the configuration that may still have them is missing.
	const enough = 1000
	past, _ := o.journal.Runs(ctx, "", enough, false)
	for _, r := range past {
		if names = append(names, r.Job); r.Job != job {
			continue
		}
		if o.cfg.Incomplete {
			return nil
		}
		return &UnknownJobError{Job: job, Removed: true}
	}
	return UnknownJob(job, names)
}

// historyError returns the error of a failed reading of the history.
func (o *Operator) historyError(err error) error {
	return unavailableError(fmt.Sprintf("read the history of namespace %s", o.cfg.Namespace), err)
}
