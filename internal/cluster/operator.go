// Package cluster shows and controls a cluster from outside. It reads the status, the history and the output of runs. It triggers and cancels runs, and pauses
// and resumes jobs. It needs only Redis, and not the configuration of a replica. The command line and the HTTP server are thin layers above it. Replicas use
// its functions to compare configurations, clocks and names.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Config configures an [Operator].
type Config struct {
	// Conn is the cluster's Redis, and Journal the history in it. The caller closes both.
	Conn    *redisconn.Conn
	Journal *journal.Journal
	// Namespace is the cluster's name in Redis.
	Namespace string
	// Jobs are the jobs of a local configuration; may be nil. They count as known even if no replica has described them yet.
	Jobs []ConfiguredJob
	// Incomplete is set if Jobs may lack some jobs, because a configuration could not be read. A job with runs in the history then counts as known.
	Incomplete bool
	// Zones returns the time zone data for the times that are shown and the ticks that are computed. The built-in data is used if Zones is nil or returns nil.
	Zones func() *cronspec.Zones
	// OnAct, if not nil, is called with each act after the act is written to the audit log, and before it is carried out. If the log cannot be
	// written, no act is carried out except a cancel. OnAct is then called after the cancel if it may have stopped a run, and the act may lack its time and id.
	OnAct func(journal.Act)
}

// A ConfiguredJob has the properties by which a user selects a job of a local configuration.
type ConfiguredJob struct {
	Name string
	Tags []string
	// Everywhere is true for a job with per_tick = "all", and Where has the labels that its replicas need.
	Everywhere bool
	Where      map[string]string
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

func findJob(infos []journal.JobInfo, job string) (info journal.JobInfo, ok bool) {
	i := slices.IndexFunc(infos, func(info journal.JobInfo) bool { return info.Name == job })
	if i < 0 {
		return info, false
	}
	return infos[i], true
}

// mustKnow returns an error unless the job is in the local configuration, or a replica has described it.
//
// The name of a job with per_tick = "all" is an error, too, which names its instances.
func (o *Operator) mustKnow(ctx context.Context, job string) error {
	infos, err := o.describedJobs(ctx)
	if err != nil {
		return err
	}
	_, described := findJob(infos, job)
	if _, everywhere := jobsEverywhere(o.cfg.Jobs, infos)[job]; everywhere && !described {
		return &UnknownJobError{Job: job, Everywhere: true, Instances: instancesOf(infos, job)}
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
	// A job that is only in the history was removed. If the local configuration is incomplete, it may still have the job, so the job counts as known. The names
	// of other jobs in the history are candidates for a suggestion.
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

// A job with per_tick = "all" has an instance for each replica, JOB@REPLICA. Replicas describe the instances. They describe the job itself only while it has
// no instance. The lock of the job itself has its pause, which replicas take over that join later.

// jobsEverywhere returns the jobs with per_tick = "all", with the labels that their replicas need: the jobs of the local configuration, and the jobs that are
// described, by themselves or by instances.
func jobsEverywhere(local []ConfiguredJob, infos []journal.JobInfo) map[string]scheduler.Labels {
	found := map[string]scheduler.Labels{}
	for _, info := range infos {
		switch {
		case info.Of != "":
			found[info.Of] = info.Where
		case info.Everywhere:
			found[info.Name] = info.Where
		}
	}
	for _, j := range local {
		if j.Everywhere {
			found[j.Name] = j.Where
		}
	}
	return found
}

// instancesOf returns the names of the described instances of a job.
func instancesOf(infos []journal.JobInfo, job string) (names []string) {
	for _, info := range infos {
		if info.Of == job {
			names = append(names, info.Name)
		}
	}
	return names
}

// allInstances returns the instances of jobs with per_tick = "all": the described instances, and the instances of registered
// replicas, which may have joined just now.
func allInstances(ctx context.Context, o *Operator, jobs map[string]scheduler.Labels) (names []string, err error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	replicas, err := o.journal.Replicas(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, unavailableError("list the replicas of namespace "+o.cfg.Namespace, err)
	}
	infos, err := o.describedJobs(ctx)
	if err != nil {
		return nil, err
	}
	for job, where := range jobs {
		names = append(names, instancesOf(infos, job)...)
		for _, r := range replicas {
			if name := job + "@" + r.Name; scheduler.Labels(r.Labels).Include(where) && journal.IsJobName(name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (o *Operator) historyError(err error) error {
	return unavailableError(fmt.Sprintf("read the history of namespace %s", o.cfg.Namespace), err)
}

// The reasons for failed operations, for errors.Is. The text of a returned error has more detail, and does not contain the text of the reason.
var (
	// ErrUnavailable means that Redis did not answer, or refused a command. The error is an [UnavailableError].
	ErrUnavailable = errors.New("redis is unavailable")
	// ErrInvalid means that a request can never succeed, whatever the state of the cluster.
	ErrInvalid = errors.New("invalid request")
	// ErrUnknownJob means that no configuration and no replica has the job. The error is an [UnknownJobError].
	ErrUnknownJob = errors.New("unknown job")
	// ErrUnknownTag means that no known job has the tag.
	ErrUnknownTag = errors.New("unknown tag")
	// ErrNoJobs means that no job is known at all.
	ErrNoJobs = errors.New("no jobs")
	// ErrUnknownRun means that the job has no such run.
	ErrUnknownRun = errors.New("unknown run")
	// ErrNotATick means that an instant is not a tick of the job's schedule.
	ErrNotATick = errors.New("not a tick")
	// ErrDisabled means that the job is not enabled, so no replica runs it.
	ErrDisabled = errors.New("disabled job")
	// ErrNoReplica means that no replica can run the job now.
	ErrNoReplica = errors.New("no replica for the job")
	// ErrTooMany means that too many trigger requests are waiting, or that the user has requested too many acts.
	ErrTooMany = journal.ErrTooMany
	// ErrNotStarted means that the context ended before a run was started.
	ErrNotStarted = errors.New("not started")
)

// An UnavailableError means that an operation failed because of Redis.
type UnavailableError struct {
	// Doing is the operation, such as "read the history".
	Doing string
	// Err is the cause.
	Err error
}

func unavailableError(doing string, err error) error { return &UnavailableError{doing, err} }

func (e *UnavailableError) Error() string { return e.Doing + ": " + e.Err.Error() }

// Unwrap returns ErrUnavailable and the cause.
func (e *UnavailableError) Unwrap() []error { return []error{ErrUnavailable, e.Err} }

// An UnknownJobError names an unknown job.
type UnknownJobError struct {
	Job string
	// Suggestion is the name that was probably meant; "" if none is close.
	Suggestion string
	// Removed is set if the job is unknown but has runs in the history.
	Removed bool
	// Everywhere is set if the job has per_tick = "all". Only its Instances, JOB@REPLICA, have runs.
	Everywhere bool
	Instances  []string
}

// UnknownJob returns the error for a job that is not among known, with a suggestion.
func UnknownJob(job string, known []string) *UnknownJobError {
	return &UnknownJobError{Job: job, Suggestion: Nearest(job, known)}
}

func (e *UnknownJobError) Error() string {
	switch {
	case e.Everywhere && len(e.Instances) == 0:
		return fmt.Sprintf("job %q runs on every replica, and no replica has it", e.Job)
	case e.Everywhere:
		const most = 10
		list, more := strings.Join(e.Instances[:min(len(e.Instances), most)], ", "), ""
		if n := len(e.Instances) - most; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		return fmt.Sprintf("job %q runs on every replica: name one of its instances: %s%s", e.Job, list, more)
	case e.Removed:
		return fmt.Sprintf("job %q has runs in the history but is no longer configured, here or on any replica", e.Job)
	case e.Suggestion != "":
		return fmt.Sprintf("no job %q; did you mean %q?", e.Job, e.Suggestion)
	}
	return fmt.Sprintf("no job %q", e.Job)
}

// Unwrap returns ErrUnknownJob.
func (e *UnknownJobError) Unwrap() error { return ErrUnknownJob }

// A refusal is an error with a reason for errors.Is. Its text is the text of its cause.
type refusal struct{ reason, cause error }

func refusalError(reason error, format string, args ...any) error {
	return &refusal{reason, fmt.Errorf(format, args...)}
}

func (r *refusal) Error() string   { return r.cause.Error() }
func (r *refusal) Unwrap() []error { return []error{r.reason, r.cause} }

// Nearest returns the name that a user most likely meant by typed; "" if no name is close. A name is close if it begins with typed, or if the edit distance
// between the two is at most 1, or at most a third of the length of typed.
func Nearest(typed string, names []string) string {
	typed = strings.ToLower(typed)
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	for most := 0; most <= max(1, len(typed)/3); most++ {
		for _, name := range names {
			if lower := strings.ToLower(name); strings.HasPrefix(lower, typed) || editDistance(typed, lower) <= most {
				return name
			}
		}
	}
	return ""
}

// editDistance returns the Levenshtein distance: the number of bytes to insert, delete or replace to turn one text into the other.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // distances from a's first i bytes to each prefix of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			if a[i] == b[j] {
				row[j+1] = diagonal
			} else {
				row[j+1] = 1 + min(diagonal, above, row[j])
			}
			diagonal = above
		}
	}
	return row[len(b)]
}

// RedisServer is a Redis server in a status.
type RedisServer = redisconn.Server

// RedisUp is the state of a Redis server that answers and can be used.
const RedisUp = redisconn.ServerUp

// mostNamed is the maximum number of servers that an error names.
const mostNamed = 3

// withServers adds the servers that are not up to err, the error of a status that could not be read. If the only server does not answer, withServers adds
// nothing, because err already says so.
func withServers(err error, servers []RedisServer) error {
	var named []string
	down := 0
	for _, s := range servers {
		if s.State == RedisUp || len(servers) == 1 && s.State == redisconn.ServerAway {
			continue
		}
		if down++; down <= mostNamed {
			named = append(named, fmt.Sprintf("%s is %s: %s", s.Address, s.State, s.Fault))
		}
	}
	switch {
	case down == 0:
		return err
	case down > mostNamed:
		named = append(named, fmt.Sprintf("and %d more", down-mostNamed))
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(named, "; "))
}
