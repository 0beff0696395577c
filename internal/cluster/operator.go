// Package operator shows and controls a cluster from outside. It reads the status, the history and the output of runs. It triggers and cancels runs, and pauses
// and resumes jobs. It needs only Redis, and not the configuration of a replica. The command line and the HTTP server are thin layers above it. Replicas use
// its functions to compare configurations, clocks and names.
package cluster

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
	// Jobs are the jobs of a local configuration, because replicas may not have described them yet. May be nil.
	Jobs []ConfiguredJob
	// Incomplete is set if a configuration could not be read, so that Jobs may lack some jobs. A job with runs in the history then counts as known.
	Incomplete bool
	// Zones returns the time zones in which times are shown and ticks are computed; nil for the built-in zones.
	Zones func() *cronspec.Zones
	// OnAct, if not nil, is called with each act that was written to the audit log, before the act is carried out.
	OnAct func(journal.Act)
}

// A ConfiguredJob has the properties by which a user selects a job of a local configuration.
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

// New returns an Operator. It sends nothing to Redis. [Operator.Close] releases its resources.
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

// mustKnow returns an error unless the job is in the local configuration, or a replica has described it.
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
	// A job that is only in the history was removed, unless the local configuration is incomplete and may still have it. Other jobs of the history are
	// suggestions.
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
