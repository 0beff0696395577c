// Package operator sees and steers a cluster from outside: its status, history and output, runs by hand, and to cancel, pause and resume. It speaks
// to Redis alone and needs no replica's configuration, so the command line and an HTTP server can be thin faces of it. Replicas use its comparison of
// configurations, clocks and names in the registry.
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

// Config names a cluster.
type Config struct {
	// Conn is its Redis, and Journal its history there. Both stay the caller's.
	Conn    *redisconn.Conn
	Journal *journal.Journal
	// Namespace is the cluster's name in Redis.
	Namespace string
	// Jobs are those of a configuration at hand, which replicas may not have described yet. May be nil.
	Jobs []ConfiguredJob
	// Incomplete is set where Jobs lack those of a configuration that cannot be read: a job is then unknown only if the history has no runs of it either.
	Incomplete bool
	// Zones returns the time zones by which times are shown and ticks computed; nil is those built in.
	Zones func() *cronspec.Zones
	// OnAct is called for each act, before it is done; may be nil.
	OnAct func(journal.Act)
}

// ConfiguredJob is a job of a configuration at hand, as far as its selection needs it.
type ConfiguredJob struct {
	Name string
	Tags []string
}

// Operator sees and steers one cluster. Its methods may be called by several goroutines.
type Operator struct {
	cfg     Config
	locks   *locking.Client
	elector *election.Elector
	journal *journal.Journal
}

// New returns an Operator. It makes no call; [Operator.Close] ends it.
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

// Close ends what the Operator runs in the background.
func (o *Operator) Close() error { return o.locks.Close() }

// Zones returns the time zones by which times are shown and ticks computed.
func (o *Operator) Zones() *cronspec.Zones {
	if o.cfg.Zones == nil {
		return nil
	}
	return o.cfg.Zones()
}

// Now is the time by the clock of Redis.
func (o *Operator) Now(ctx context.Context) (time.Time, error) {
	now, err := o.locks.ServerTime(ctx)
	if err != nil {
		return now, unavailable("read the clock of Redis", err)
	}
	return now, nil
}

// described reads the jobs that replicas have described. Damaged descriptions are left out.
func (o *Operator) described(ctx context.Context) ([]journal.JobInfo, error) {
	infos, err := o.journal.Jobs(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, unavailable("list the jobs of namespace "+o.cfg.Namespace, err)
	}
	return infos, nil
}

// find returns the description of one job; ok is false if it is not among them.
func find(infos []journal.JobInfo, job string) (info journal.JobInfo, ok bool) {
	i := slices.IndexFunc(infos, func(info journal.JobInfo) bool { return info.Name == job })
	if i < 0 {
		return info, false
	}
	return infos[i], true
}

// mustKnow returns an error for a job that is neither configured at hand nor on a replica.
func (o *Operator) mustKnow(ctx context.Context, job string) error {
	infos, err := o.described(ctx)
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
	// Jobs that are gone are good for a suggestion only, unless the configuration that may still have them is missing.
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

// historyError is an error of reading the history.
func (o *Operator) historyError(err error) error {
	return unavailable(fmt.Sprintf("read the history of namespace %s", o.cfg.Namespace), err)
}
