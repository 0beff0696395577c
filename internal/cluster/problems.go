package cluster

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// A Level is the severity of a problem.
type Level string

// The levels.
const (
	LevelError   Level = "error"   // something has failed
	LevelWarning Level = "warning" // something was missed or is faulty
	LevelAdvice  Level = "advice"  // nothing has failed yet, or the failure is over
)

// A Problem is a failure, a warning or advice about a cluster.
type Problem struct {
	Level Level `json:"level"`
	// Code is the code of a warning, or job_failed, job_missed, pool_full, replica_silent, replica_lost, stood_still, lease_margin, redis_lost_data or
	// redis_was_away.
	Code string `json:"code"`
	// Job or Replica is the name of the job or replica with the problem. If both are "", the problem concerns the whole cluster.
	Job     string     `json:"job,omitempty"`
	Replica string     `json:"replica,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Message string     `json:"message"`
	// Failures describes the failures of a failing job; nil for other problems. If it is set, Since is the end of the first failure.
	Failures *Streak `json:"failures,omitempty"`
}

// levels maps the codes of warnings to levels. All other codes have [LevelWarning].
var levels = map[string]Level{
	"no_replica": LevelError,
	"embedded":   LevelAdvice, "settings_hidden": LevelAdvice, "snapshots_only": LevelAdvice, "no_persistence": LevelAdvice, "replicas_register": LevelAdvice, CodeZoneDataOlder: LevelAdvice,
}

// NeedsPerson reports whether a problem requires a person to act, because it is more than advice.
func (st *Status) NeedsPerson() bool {
	return slices.ContainsFunc(st.Problems, func(p Problem) bool { return p.Level != LevelAdvice })
}

// findProblems returns the problems of a cluster, causes before their consequences.
func (st *Status) findProblems() []Problem {
	list := []Problem{}
	for _, w := range st.Warnings {
		level := cmp.Or(levels[w.Code], LevelWarning)
		from := st.origins[w]
		list = append(list, Problem{Level: level, Code: w.Code, Job: from.job, Replica: from.replica, Since: from.since, Message: w.Message})
	}
	for _, j := range st.Jobs {
		if p, failed := j.failureProblem(); failed {
			list = append(list, p)
		}
	}
	for _, j := range st.Jobs {
		list = append(list, j.lateProblems()...)
	}
	list = append(list, st.pastFaults()...)
	for _, pool := range st.Pools {
		if p, full := pool.fullProblem(); full {
			list = append(list, p)
		}
	}
	for _, l := range st.Lost {
		list = append(list, st.lostProblem(l))
	}
	sortByCause(list, st.Now)
	return list
}

// lostProblem returns the problem of a lost replica. It is only advice if the expected number of replicas is up.
func (st *Status) lostProblem(l LostReplica) Problem {
	p := Problem{Level: LevelWarning, Code: "replica_lost", Replica: l.Name, Since: &l.Seen,
		Message: fmt.Sprintf("the registration of replica %s expired: it died, or was cut off", l.Name)}
	switch {
	case st.Expected > 0 && st.up >= st.Expected:
		p.Level = LevelAdvice
		p.Message += fmt.Sprintf("; %d replicas are up, and [cluster].replicas expects %d", st.up, st.Expected)
	case st.up > 0:
		p.Message += "; its ticks go to the other replicas"
		if slices.ContainsFunc(st.Jobs, func(j Job) bool { _, on := journal.InstanceOf(j.Name); return on == l.Name && j.Enabled }) {
			p.Message += `, except for jobs with per_tick = "all", whose ticks on it are missed`
		}
		p.Message += "; start it again, or say that it is gone for good: cronclave forget " + l.Name
	}
	return p
}

// CodeDataLost is the code of the problem that Redis has lost its data.
const CodeDataLost = "redis_lost_data"

// pastFaults returns the recent problems of Redis and of replicas, even if they are over.
func (st *Status) pastFaults() (list []Problem) {
	if in := newestIncident(st.Incidents, journal.DataLoss, st.Now); in != nil {
		closed := ""
		if until := st.LocksClosedUntil; until != nil {
			closed = fmt.Sprintf("; locks stay closed until %s at most, for one lease, and grant nothing until then", until.UTC().Format(time.RFC3339))
		}
		list = append(list, Problem{Level: LevelWarning, Code: CodeDataLost, Since: &in.To,
			Message: fmt.Sprintf("Redis lost its data between %s (FLUSHALL, a restart without its data, or a failover): replicas have restored the locks that "+
				"they know; the earlier history and audit log may be missing%s; check appendonly and acked_replicas", boundsText(in.Interval), closed)})
	}
	if in := newestIncident(st.Incidents, journal.Outage, st.Now); in != nil {
		list = append(list, Problem{Level: LevelAdvice, Code: "redis_was_away", Since: &in.To,
			Message: fmt.Sprintf("Redis did not answer %s for %v, between %s; cronclave why JOB TIME explains the ticks of that time", in.Replica,
				in.Length().Round(time.Second), boundsText(in.Interval))})
	}
	for _, r := range st.Replicas {
		list = append(list, r.recentProblems()...)
	}
	return list
}

// lateProblems returns the problems of a job that is late. A run that is slow only by comparison is advice.
func (j Job) lateProblems() (list []Problem) {
	for _, c := range j.Conditions {
		level := LevelWarning
		if c.Unset {
			level = LevelAdvice
		}
		list = append(list, Problem{Level: level, Code: "job_" + c.Code, Job: j.Name, Since: &c.Since, Message: c.Message})
	}
	return list
}

// failureProblem returns the problem of a job whose last run failed or whose last tick was missed. The failure does not count while the tick runs again.
func (j Job) failureProblem() (p Problem, failed bool) {
	if !j.isFailing() {
		return p, false
	}
	r := *j.LastEnd
	p = Problem{Level: LevelError, Code: codeJobFailed, Job: j.Name, Since: &r.Finished, Failures: j.Failures}
	if r.Outcome == journal.OutcomeMissed {
		p.Level, p.Code = LevelWarning, codeJobMissed
	}
	p.Message = fmt.Sprintf("job %s %s", j.Name, r.Outcome)
	if r.Replica != "" && !r.Started.IsZero() {
		p.Message += " on " + r.Replica
	}
	if r.Reason != "" {
		p.Message += ": " + FirstLine(string(r.Reason), 60)
	}
	if f := j.Failures; f != nil {
		p.Since, p.Message = &f.Since, p.Message+f.String()
	}
	return p, true
}

func (j Job) isFailing() bool {
	recovers := j.Last != nil && j.Last.Outcome == journal.OutcomeRunning && j.LastEnd != nil && !j.Last.Tick.IsZero() && j.Last.Tick.Equal(j.LastEnd.Tick)
	return j.Enabled && j.LastEnd != nil && j.LastEnd.Failed() && !j.isOver && !recovers
}

// withoutTries returns the newest records, at most RecentRuns, without failed attempts that were retried.
func withoutTries(newestFirst []journal.Record) []journal.Record {
	list := []journal.Record{} // an empty list is [] in JSON, not null
	for _, r := range newestFirst {
		if !r.Retried && len(list) < RecentRuns {
			list = append(list, r)
		}
	}
	return list
}

// lastEnd returns the record for [Job.LastEnd]; nil if there is none.
func lastEnd(newestFirst []journal.Record) *journal.Record {
	for i, r := range newestFirst {
		switch r.Outcome {
		case journal.OutcomeRunning, journal.OutcomeSkipped, journal.OutcomeCanceled:
		default:
			if !r.Retried {
				return &newestFirst[i]
			}
		}
	}
	return nil
}

// A StatusRequest selects the jobs of a status. Jobs must match all fields that are set.
type StatusRequest struct {
	// Job is the name of a job. The status then has only problems of the job and of the cluster.
	Job string
	// Recent is the number of newest records per job; 0 for the maximum, [RecentRuns]. It affects only [Job.Recent].
	Recent int
	// Failed selects the jobs that have a problem, Running the jobs that have a run, and Paused the jobs that are paused.
	Failed, Running, Paused bool
	// Tag is a tag that the jobs have. Match is a shell pattern that their names match, or a part of their names.
	Tag, Match string
	// Limit is the maximum number of jobs; 0 for all. After is the name after which they begin.
	Limit int
	After string
}

func (q StatusRequest) recordsPerJob() int {
	if q.Recent <= 0 {
		return RecentRuns
	}
	return min(q.Recent, RecentRuns)
}

// filterJobs keeps the jobs that match the request. It does not change the lists in place, because other callers may share them.
func (st *Status) filterJobs(req StatusRequest) error {
	if _, err := path.Match(req.Match, ""); err != nil {
		return refusalError(ErrInvalid, "pattern %q: it is faulty; write one such as 'backup-*'", req.Match)
	}
	all := st.Jobs
	st.Jobs = slices.DeleteFunc(slices.Clone(all), func(j Job) bool { return !req.includesJob(j) })
	if req.Tag != "" && !slices.ContainsFunc(all, func(j Job) bool { return slices.Contains(j.Tags, req.Tag) }) {
		return refusalError(ErrUnknownTag, "no job has the tag %q", req.Tag)
	}
	st.cutPage(req)
	if req.Job != "" {
		st.Problems = slices.DeleteFunc(slices.Clone(st.Problems), func(p Problem) bool { return p.Job != "" && p.Job != req.Job })
	}
	return nil
}

// cutPage keeps one page of the jobs, which are sorted by name. If there are several pages, it keeps only the problems of the jobs on the page and of the cluster.
func (st *Status) cutPage(req StatusRequest) {
	if req.Limit <= 0 {
		return
	}
	matching := len(st.Jobs)
	st.Jobs = slices.DeleteFunc(st.Jobs, func(j Job) bool { return j.Name <= req.After })
	if len(st.Jobs) > req.Limit {
		st.Jobs = st.Jobs[:req.Limit]
		st.NextAfter = st.Jobs[req.Limit-1].Name
	}
	if len(st.Jobs) == matching {
		return
	}
	onPage := map[string]bool{"": true}
	for _, j := range st.Jobs {
		onPage[j.Name] = true
	}
	st.Problems = slices.DeleteFunc(slices.Clone(st.Problems), func(p Problem) bool { return !onPage[p.Job] })
}

func (q StatusRequest) includesJob(j Job) bool {
	matched, _ := path.Match(q.Match, j.Name)
	switch {
	case q.Job != "" && j.Name != q.Job,
		q.Failed && !j.isFailing(),
		q.Running && len(j.Holders) == 0,
		q.Paused && !j.Paused,
		q.Tag != "" && !slices.Contains(j.Tags, q.Tag),
		q.Match != "" && !matched && !strings.Contains(j.Name, q.Match):
		return false
	}
	return true
}

// A cause is a kind of problem. The kinds are sorted: a problem may result from a problem of an earlier kind.
type cause int

const (
	ofRedis cause = iota
	ofReplicas
	ofConfiguration
	ofOthers
	ofNewFailures
	ofOldFailures
	advised
)

// causes maps the codes of problems to their kinds. All other codes are problems of Redis.
var causes = map[string]cause{
	"no_replica": ofReplicas, "replica_lost": ofReplicas, CodeTooFew: ofReplicas, "replica_silent": ofReplicas, "stood_still": ofReplicas, "lease_margin": ofReplicas,
	CodeCannotStart: ofReplicas, CodeClockOff: ofReplicas, CodeSameName: ofReplicas, CodeNowhere: ofConfiguration,
	CodeConfigRefused: ofConfiguration, CodeConfigDiffers: ofConfiguration, CodeZoneDataDiffers: ofConfiguration,
	CodeHeartbeat: ofOthers, CodeNotify: ofOthers, CodePoolFull: ofOthers, codeJobFailed: ofNewFailures, codeJobMissed: ofNewFailures,
	"job_" + Slow: ofNewFailures, "job_" + Stale: ofNewFailures, "job_" + Overdue: ofNewFailures,
}

const codeJobFailed, codeJobMissed = "job_failed", "job_missed"

// oldAfter is the age from which a failure counts as old.
const oldAfter = 24 * time.Hour

func (p Problem) causeAt(now time.Time) cause {
	switch kind := causes[p.Code]; {
	case p.Level == LevelAdvice:
		return advised
	case kind == ofNewFailures && p.Since != nil && now.Sub(*p.Since) >= oldAfter:
		return ofOldFailures
	default:
		return kind
	}
}

// sortByCause sorts problems by kind, then by level. Failures of one kind and level are sorted from new to old.
func sortByCause(list []Problem, now time.Time) {
	rank := []Level{LevelError, LevelWarning, LevelAdvice}
	slices.SortStableFunc(list, func(a, b Problem) int {
		kind := a.causeAt(now)
		order := cmp.Or(cmp.Compare(kind, b.causeAt(now)), cmp.Compare(slices.Index(rank, a.Level), slices.Index(rank, b.Level)))
		if order == 0 && (kind == ofNewFailures || kind == ofOldFailures) {
			return b.Since.Compare(*a.Since)
		}
		return order
	})
}

// mostGrouped is the maximum number of jobs that a group of old failures names.
const mostGrouped = 10

// Grouped returns the problems for a display on one screen. It combines all old failures of jobs into one problem, with the worst of their levels.
func (st *Status) Grouped() []Problem {
	old := slices.IndexFunc(st.Problems, func(p Problem) bool { return p.causeAt(st.Now) == ofOldFailures })
	if old < 0 {
		return st.Problems
	}
	n := 0
	for _, p := range st.Problems[old:] {
		if p.causeAt(st.Now) == ofOldFailures {
			n++
		}
	}
	if n == 1 {
		return st.Problems
	}
	group := Problem{Level: st.Problems[old].Level, Code: st.Problems[old].Code, Message: fmt.Sprintf("%d jobs have failed for more than a day: ", n)}
	for i, p := range st.Problems[old : old+n] {
		switch {
		case i == mostGrouped:
			group.Message += fmt.Sprintf(" and %d more; cronclave status -o wide lists them", n-i)
		case i > mostGrouped:
		case i > 0:
			group.Message += ", " + p.Job
		default:
			group.Message += p.Job
		}
	}
	return slices.Concat(st.Problems[:old], []Problem{group}, st.Problems[old+n:])
}
