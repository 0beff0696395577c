package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// A Status is the state of a cluster at one moment. Its JSON is part of the contract with users.
type Status struct {
	Namespace string    `json:"namespace"`
	Now       time.Time `json:"now"` // by the clock of Redis
	Leader    *Leader   `json:"leader,omitempty"`
	Replicas  []Replica `json:"replicas"`                    // by name
	Expected  int       `json:"expected_replicas,omitempty"` // number of replicas that should be up; 0 if no configuration sets it
	Jobs      []Job     `json:"jobs"`                        // the selected jobs
	JobCount  int       `json:"job_count"`
	// NextAfter is the name after which the next page of jobs begins; "" on the last page.
	NextAfter string `json:"next_after,omitempty"`
	Pools     []Pool `json:"pools"` // Pools and Locks are sorted by name
	Locks     []Lock `json:"locks"` // locks that a `cronclave lock` process has used for more than a second
	// Lost are the replicas whose registration expired within the last day, although they were not stopped. An entry ends when a replica of the same name starts.
	Lost []LostReplica `json:"lost"`
	up   int           // replicas that are up and not draining
	// Incidents are the outages of Redis and the losses of its data within the last week, from new to old.
	Incidents []journal.Incident `json:"incidents"`
	// DataLost is the newest loss of Redis' data within the last day; nil if there is none. LocksClosedUntil is the time at which the last closed lock or
	// pool opens; nil if none is closed.
	DataLost         *journal.Interval `json:"data_lost,omitempty"`
	LocksClosedUntil *time.Time        `json:"locks_closed_until,omitempty"`
	// Problems are sorted by cause: Redis, replicas, the configuration, jobs, and advice last. See [Status.Grouped].
	Problems []Problem `json:"problems"`
	// Warnings are faults of the cluster.
	Warnings []redisconn.Warning `json:"warnings"`
	origins  map[redisconn.Warning]origin
	// Redis is the Redis of the locks and the history: its kind, its servers and its limits.
	Redis redisconn.Deployment `json:"redis"`
	// Settings are the settings of the job if one was requested; nil otherwise.
	Settings *JobSettings `json:"settings,omitempty"`
}

// ReplicasUp returns the number of replicas in state [ReplicaUp].
func (st *Status) ReplicasUp() (n int) {
	for _, r := range st.Replicas {
		if r.State == ReplicaUp {
			n++
		}
	}
	return n
}

// Leader is the replica that does the cluster's housekeeping.
type Leader struct {
	Replica string `json:"replica"`
	Token   int64  `json:"token"`
}

// A Job is a job that a replica has described.
type Job struct {
	Name     string          `json:"name"`
	Schedule []string        `json:"schedule"`
	After    []string        `json:"after,omitempty"`
	Timezone string          `json:"timezone"`
	Enabled  bool            `json:"enabled"`
	Paused   bool            `json:"paused"`
	Last     *journal.Record `json:"last,omitempty"`
	// LastEnd is the newest record of a run that has ended, or of a missed tick; nil if the records that were read have none. Canceled runs, skipped ticks, and
	// failed attempts that were retried do not count.
	LastEnd *journal.Record `json:"last_end,omitempty"`
	isOver  bool            // LastEnd is a failure that is no problem any more
	Next    *time.Time      `json:"next,omitempty"` // in the job's zone
	Holders []Holder        `json:"holders"`
	// Failures are the failures since the last success; nil if the job does not fail.
	Failures *Streak `json:"failures,omitempty"`

	// Conditions are states of the job that need attention: slow, stale or overdue. UsualMS is the usual duration of its runs; nil if unknown.
	Conditions []Condition `json:"conditions,omitempty"`
	UsualMS    *int64      `json:"usual_ms,omitempty"`

	Parallel int               `json:"parallel"`            // number of slots
	JitterMS int64             `json:"jitter_ms,omitempty"` // maximum delay of a tick by its jitter
	Pool     string            `json:"pool,omitempty"`      // each run needs a slot of this pool
	Tags     []string          `json:"tags,omitempty"`
	Where    map[string]string `json:"where,omitempty"`

	PausedSince  *time.Time `json:"paused_since,omitempty"`
	PausedUntil  *time.Time `json:"paused_until,omitempty"` // nil if the pause lasts until the job is resumed
	PausedReason string     `json:"paused_reason,omitempty"`
	PausedBy     string     `json:"paused_by,omitempty"` // the user who paused the job

	// Recent are the newest records, as many as requested, from new to old. Failed attempts that were retried are left out.
	Recent []journal.Record `json:"recent"`
}

// A Holder is a run that holds a slot of a job.
type Holder struct {
	Replica string     `json:"replica"`
	RunID   string     `json:"run_id"`
	Slot    int        `json:"slot"`
	Token   int64      `json:"token"`
	Tick    *time.Time `json:"tick,omitempty"`
	Expires time.Time  `json:"expires"`
}

// RecentRuns is the number of records per job in a status. If they do not determine [Job.LastEnd], moreRecent records are read.
const RecentRuns, moreRecent = 10, 100

// maxUnclear limits the jobs for which moreRecent records are read, because status is polled.
const maxUnclear = 100

// Status reads the replicas, the leader, the jobs, and the faults of the cluster. Damaged data in Redis becomes a warning.
func (o *Operator) Status(ctx context.Context, req StatusRequest) (*Status, error) {
	all, err := o.readStatus(ctx, req.recordsPerJob())
	if err != nil {
		return nil, err
	}
	st, err := o.chooseStatus(ctx, all, req)
	if err == nil && req.Job != "" {
		st.Settings = o.Settings(ctx, st.Replicas, req.Job)
	}
	return st, err
}

// chooseStatus returns a status with the selected jobs. It does not change all.
func (o *Operator) chooseStatus(ctx context.Context, all *Status, req StatusRequest) (*Status, error) {
	st := *all
	if err := st.filterJobs(req); err != nil || req.Job == "" || len(st.Jobs) > 0 {
		return &st, err
	}
	if err := o.mustKnow(ctx, req.Job); err != nil {
		return &st, err
	}
	return &st, refusalError(ErrNoReplica, "job %s: no replica has it", req.Job)
}

func (o *Operator) readStatus(ctx context.Context, records int) (*Status, error) {
	r := statusReader{Operator: o, recent: records}
	if err := r.readAll(ctx); err != nil {
		return nil, unavailableError("read the status of namespace "+o.cfg.Namespace, withServers(err, r.status.Redis.Servers))
	}
	r.status.JobCount = len(r.status.Jobs)
	r.status.Problems = r.status.findProblems()
	return &r.status, nil
}

// A statusReader assembles a status. The order of its steps is the order of the warnings.
type statusReader struct {
	*Operator
	recent   int
	status   Status
	replicas []journal.Replica
	jobs     []journal.JobInfo
	back     time.Time // time since which Redis answers all replicas; see answersSince
	awaited  bool      // a replica may be up that has not registered since Redis came back
}

func (r *statusReader) readAll(ctx context.Context) error {
	health, err := r.cfg.Conn.Examine(ctx)
	r.status = Status{Namespace: r.cfg.Namespace, Redis: health.Redis, Replicas: []Replica{}, Lost: []LostReplica{}, Jobs: []Job{}, Pools: []Pool{}, Locks: []Lock{}, Warnings: append([]redisconn.Warning{}, health.Warnings...)}
	if err != nil {
		r.addWarning("redis", "%v", err)
	}
	if r.status.Now, err = r.locks.ServerTime(ctx); err != nil {
		return err
	}
	if err := r.readLeader(ctx); err != nil {
		return err
	}
	if err := r.readIncidents(ctx); err != nil {
		return err
	}
	if err := r.readReplicas(ctx); err != nil {
		return err
	}
	if err := r.readJobs(ctx); err != nil {
		return err
	}
	if err := r.readLocks(ctx); err != nil {
		return err
	}
	if err := r.warnOfTargets(ctx); err != nil {
		return err
	}
	r.warnOfClocks()
	r.warnOfPlaces()
	r.warnOfZones()
	return nil
}

func (r *statusReader) readLeader(ctx context.Context) error {
	leadership, err := election.NewLeadership(election.LeadershipConfig{Locks: r.locks, Name: Leadership})
	if err != nil {
		return err
	}
	leader, ok, err := leadership.Leader(ctx)
	if err = r.tolerateLock("the leadership", err); err != nil {
		return err
	}
	if ok {
		r.status.Leader = &Leader{leader.Name, leader.Token}
	}
	return nil
}

func (r *statusReader) readJobs(ctx context.Context) (err error) {
	r.jobs, err = r.journal.Jobs(ctx)
	if err = r.tolerateDamage(err); err != nil {
		return err
	}
	requests, names := make([]election.InspectRequest, len(r.jobs)), make([]string, len(r.jobs))
	for i, info := range r.jobs {
		requests[i], names[i] = election.InspectRequest{Lock: election.JobLock(info.Name)}, info.Name
	}
	recent, err := r.readRecent(ctx, names)
	if err != nil {
		return err
	}
	for i, state := range r.elector.Inspect(ctx, requests) {
		if err := r.tolerateLock("job "+names[i], state.Err); err != nil {
			return err
		}
		if state.Err != nil {
			state = election.State{Now: r.status.Now} // the holders and the pause of the job are unknown
		}
		r.noteClosed(state.Closed)
		r.status.Jobs = append(r.status.Jobs, jobOf(r.Zones(), r.jobs, r.jobs[i], state, recent[names[i]], r.status.Now))
	}
	if err := r.addConditions(ctx); err != nil {
		return err
	}
	return r.addStreaks(ctx, recent)
}

// addConditions finds the jobs that are slow, stale or overdue. It reads the usual duration of idle jobs only for a status with all records, because a page that
// is polled shows it only for the jobs that run.
func (r *statusReader) addConditions(ctx context.Context) error {
	running := map[string][]string{}
	for _, j := range r.status.Jobs {
		if len(j.Holders) == 0 && r.recent < RecentRuns {
			continue
		}
		running[j.Name] = nil
		for _, h := range j.Holders {
			running[j.Name] = append(running[j.Name], h.RunID)
		}
	}
	evidence, err := ReadEvidence(ctx, r.journal, r.jobs, running)
	if err = r.tolerateDamage(err); err != nil {
		return err
	}
	for _, j := range r.status.Jobs {
		e := evidence[j.Name]
		e.Paused = j.Paused
		evidence[j.Name] = e
	}
	for i := range r.status.Jobs {
		j := &r.status.Jobs[i]
		j.Conditions = ConditionsOf(r.Zones(), r.jobs, r.jobs[i], evidence, r.status.Now)
		if usual, known := usualDuration(evidence[j.Name].Took); known {
			j.UsualMS = new(usual.Milliseconds())
		}
	}
	return nil
}

// noteClosed raises LocksClosedUntil to the time until which a lock is closed.
func (r *statusReader) noteClosed(until time.Time) {
	if until.After(r.status.Now) && (r.status.LocksClosedUntil == nil || until.After(*r.status.LocksClosedUntil)) {
		r.status.LocksClosedUntil = &until
	}
}

func (r *statusReader) addStreaks(ctx context.Context, recent map[string][]journal.Record) error {
	var failing []string
	for _, j := range r.status.Jobs {
		if j.isFailing() {
			failing = append(failing, j.Name)
		}
	}
	if len(failing) == 0 {
		return nil
	}
	streaks, err := r.journal.Streaks(ctx, failing)
	if err = r.tolerateDamage(err); err != nil {
		return err
	}
	few := slices.DeleteFunc(slices.Clone(failing), func(name string) bool { return r.recent >= RecentRuns || len(recent[name]) >= RecentRuns })
	more, err := r.journal.Recent(ctx, few, RecentRuns) // the streak must not depend on the number of records requested
	if err = r.tolerateDamage(err); err != nil {
		return err
	}
	maps.Copy(recent, more)
	for i := range r.status.Jobs {
		if j := &r.status.Jobs[i]; j.isFailing() {
			j.Failures = streakOf(recent[j.Name], streaks[j.Name], RecentRuns)
		}
	}
	return nil
}

// readRecent reads the newest records of jobs. If these do not determine [Job.LastEnd] of a job, it reads more records of that job.
func (r *statusReader) readRecent(ctx context.Context, names []string) (map[string][]journal.Record, error) {
	recent, before := map[string][]journal.Record{}, 0
	for _, n := range slices.Compact([]int{r.recent, RecentRuns, moreRecent}) {
		unclear := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return len(recent[name]) < before || lastEnd(recent[name]) != nil })
		if len(unclear) == 0 {
			break
		}
		if n == moreRecent { // after a pause of all jobs for some hours, their newest records are all skipped ticks, so the last end of every job is unclear
			unclear = unclear[:min(len(unclear), maxUnclear)]
		}
		more, err := r.journal.Recent(ctx, unclear, n)
		if before > 0 && errors.Is(err, journal.ErrCorrupt) { // the first reading has added a warning
			err = nil
		}
		if err = r.tolerateDamage(err); err != nil {
			return nil, err
		}
		maps.Copy(recent, more)
		before = n
	}
	return recent, nil
}

func jobOf(zones *cronspec.Zones, infos []journal.JobInfo, info journal.JobInfo, state election.State, recent []journal.Record, now time.Time) Job {
	j := Job{Name: info.Name, Schedule: append([]string{}, info.Schedule...), After: info.After, Timezone: info.Timezone, Enabled: info.Enabled,
		Holders: holdersOf(state), Next: nextTick(zones, info, now), Recent: withoutTries(recent), LastEnd: lastEnd(recent), Parallel: info.Parallel, JitterMS: info.JitterMS, Pool: info.Pool, Tags: info.Tags, Where: info.Where}
	if j.Paused = state.Pause.On(state.Now); j.Paused {
		j.PausedSince, j.PausedUntil, j.PausedReason, j.PausedBy = &state.Pause.From, untilOf(state.Pause), state.Pause.Reason, state.Pause.By
	}
	if len(recent) > 0 {
		j.Last = &recent[0]
	}
	if j.LastEnd != nil && j.LastEnd.Failed() {
		j.isOver = isOver(schedulesOf(zones, infos, info), j.LastEnd.Finished, now)
	}
	return j
}

func holdersOf(state election.State) []Holder {
	list := []Holder{}
	for _, r := range state.Running {
		list = append(list, Holder{Replica: r.Holder, RunID: r.ID, Slot: r.Slot, Token: int64(r.Token), Tick: tickOf(r), Expires: r.Expires})
	}
	return list
}

func tickOf(r election.Run) *time.Time {
	if r.Tick.IsZero() {
		return nil
	}
	at := r.Instant()
	return &at
}

// tolerateDamage turns an error about damaged data into a warning, because the rest of the reply is valid.
func (r *statusReader) tolerateDamage(err error) error {
	if !errors.Is(err, journal.ErrCorrupt) {
		return err
	}
	r.addWarning("corrupt_data", "%v", err)
	return nil
}

// tolerateLock turns an error about the damaged data of one lock into a warning, because all other locks are valid.
func (r *statusReader) tolerateLock(title string, err error) error {
	if !errors.Is(err, election.ErrCorrupt) {
		return err
	}
	r.addWarning("corrupt_data", "%s: %v; it does nothing until its key is mended or deleted (redis-cli DEL); after that its lock stays closed for one lease", title, err)
	return nil
}

func (r *statusReader) addWarning(code, format string, args ...any) {
	r.status.Warnings = append(r.status.Warnings, redisconn.Warning{Code: code, Message: fmt.Sprintf(format, args...)})
}

// A Streak describes the failures of a job since its last success. Its JSON is part of the contract with users.
type Streak struct {
	Since time.Time `json:"since"` // end of the first failure
	Count int       `json:"count"`
	// AtLeast is set if Count is a lower bound and Since may be too late: no success is known, replicas of an older version recorded failures, or a success was
	// recorded only after later failures.
	AtLeast bool       `json:"at_least,omitempty"`
	LastOK  *time.Time `json:"last_ok,omitempty"` // end of the last success; nil if none is known
}

// String returns text to append to a sentence about the newest failure, such as "; 3 in a row". It is "" if there is only one failure and no success is known.
func (s Streak) String() (text string) {
	switch {
	case s.AtLeast:
		text = fmt.Sprintf("; at least %d in a row", s.Count)
	case s.Count > 1:
		text = fmt.Sprintf("; %d in a row", s.Count)
	}
	if s.LastOK != nil {
		text += "; last ok at " + s.LastOK.UTC().Format(time.RFC3339)
	}
	return text
}

// streakOf returns the streak of a job. If the newest records have a success, they suffice. Otherwise, the streak may have begun before them, so kept, the
// streak that Redis stores, has its start and count. kept may lack failures that the records have, because replicas of an older version do not update it. The
// records then decide. most is the number of records requested: with fewer records, the job has no others.
func streakOf(newestFirst []journal.Record, kept journal.Streak, most int) *Streak {
	var s Streak
	for _, r := range newestFirst {
		switch {
		case r.Retried:
		case r.Outcome == journal.OutcomeOK:
			s.LastOK = &r.Finished
			return &s
		case r.Failed():
			s.Since = r.Finished
			s.Count++
		}
	}
	if !kept.LastOK.IsZero() {
		s.LastOK = &kept.LastOK
	}
	missed := kept.Count < s.Count || kept.Since.After(s.Since)
	if !missed {
		s.Since, s.Count = kept.Since, kept.Count
	}
	s.AtLeast = kept.AtLeast || len(newestFirst) >= most && (missed || kept.LastOK.IsZero())
	return &s
}
