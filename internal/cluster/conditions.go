package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/multierr"
	"github.com/cronclave/cronclave/scheduler/cronspec"
	"github.com/cronclave/cronclave/scheduler/run"
)

// The codes of conditions. [Problem.Code] has the prefix "job_" before them.
const (
	Slow    = "slow"
	Stale   = "stale"
	Overdue = "overdue"
)

// A Condition is a state of a job that lasts: a run takes too long, or a success is missing.
type Condition struct {
	Code    string    `json:"code"`
	Since   time.Time `json:"since"`
	Message string    `json:"message"` // the same for as long as the condition lasts: it says since when, not for how long
	// Unset is true if the configuration sets no limit, so the condition is only a guess from earlier runs.
	Unset bool `json:"-"`
}

const (
	// Without warn_after, a run is slow if it takes longer than slowAfter, and longer than slowFactor times the median of at least enoughRuns earlier runs.
	slowFactor = 4
	enoughRuns = 3
	slowAfter  = time.Minute
)

// Evidence has the facts from which the conditions of a job follow.
type Evidence struct {
	Paused bool
	// Streak is read only for jobs with stale_after or expect_by, and for the jobs before them.
	Streak journal.Streak
	// Running has the records of runs in progress, and Took the durations of the newest runs that ended ok.
	Running []journal.Record
	Took    []time.Duration
}

// ReadEvidence reads the evidence of jobs. running has the jobs with runs that may be slow, with the ids of these runs; for a job without ids, only Took is read.
// It leaves Paused to the caller. With an error that wraps [journal.ErrCorrupt], the other facts are valid.
func ReadEvidence(ctx context.Context, j *journal.Journal, jobs []journal.JobInfo, running map[string][]string) (map[string]Evidence, error) {
	var expected, timed []string
	for _, info := range jobs {
		if info.StaleAfterMS > 0 || info.ExpectBy != "" {
			line, _ := lineOf(jobs, info)
			for _, one := range line {
				expected = append(expected, one.Name)
			}
		}
		if _, runs := running[info.Name]; runs {
			timed = append(timed, info.Name)
		}
	}
	slices.Sort(expected)
	var damage multierr.List
	streaks, err := j.Streaks(ctx, slices.Compact(expected))
	if err = keepDamage(&damage, err); err != nil {
		return nil, err
	}
	took, err := j.Durations(ctx, timed)
	if err = keepDamage(&damage, err); err != nil {
		return nil, err
	}
	records, err := j.RunsByID(ctx, running)
	if err = keepDamage(&damage, err); err != nil {
		return nil, err
	}
	all := make(map[string]Evidence, len(jobs))
	for _, info := range jobs {
		all[info.Name] = Evidence{Streak: streaks[info.Name], Running: records[info.Name], Took: took[info.Name]}
	}
	return all, damage.Err()
}

// keepDamage adds an error about damaged data to damage. It returns all other errors.
func keepDamage(damage *multierr.List, err error) error {
	if errors.Is(err, journal.ErrCorrupt) {
		damage.Add(err)
		return nil
	}
	return err
}

// usualDuration returns the median of durations. It is unknown if there are only few of them.
func usualDuration(took []time.Duration) (usual time.Duration, known bool) {
	if len(took) < enoughRuns {
		return 0, false
	}
	return slices.Sorted(slices.Values(took))[len(took)/2], true
}

// ConditionsOf returns the conditions of a job. jobs and evidence have all jobs: a chained job has the ticks and pauses of the jobs before it.
func ConditionsOf(zones *cronspec.Zones, jobs []journal.JobInfo, info journal.JobInfo, evidence map[string]Evidence, now time.Time) (list []Condition) {
	own := evidence[info.Name]
	if c, slow := slowRun(info, own, now); slow {
		list = append(list, c)
	}
	if !info.Enabled || info.StaleAfterMS == 0 && info.ExpectBy == "" {
		return list
	}
	from, staleFrom, line := own.lacksOKSince(), time.Time{}, []journal.JobInfo(nil)
	if line, _ = lineOf(jobs, info); from.IsZero() || slices.ContainsFunc(line, func(one journal.JobInfo) bool { return evidence[one.Name].Paused }) {
		return list
	}
	for _, one := range line { // nothing before the end of a pause counts, and nothing before the job had these ticks
		from = slices.MaxFunc([]time.Time{from, evidence[one.Name].Streak.Paused, one.Since}, time.Time.Compare)
		staleFrom = slices.MaxFunc([]time.Time{staleFrom, from, one.StartsAt}, time.Time.Compare) // from stays before starts_at, because the first tick may be at starts_at
	}
	limit := millis(info.StaleAfterMS)
	if limit > 0 && now.Sub(staleFrom) > limit && hasTicksLeft(schedulesOf(zones, jobs, info), now) {
		list = append(list, Condition{Code: Stale, Since: staleFrom.Add(limit),
			Message: fmt.Sprintf("job %s has not ended ok since %s, for longer than stale_after (%v)", info.Name, staleFrom.UTC().Format(time.RFC3339), limit)})
	}
	if info.ExpectBy == "" {
		return list
	}
	if due, overdue := overdueSince(zones, info, schedulesOf(zones, jobs, info), from, now); overdue {
		list = append(list, Condition{Code: Overdue, Since: due,
			Message: fmt.Sprintf("job %s has not ended ok by %s (expect_by)", info.Name, due.Format("15:04 MST on 2006-01-02"))})
	}
	return list
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// lacksOKSince returns the time since which a job has lacked a success: its last success or, if none is known, its first sign of life. It is zero for a job
// without either, which may be new. A run in progress counts from just before its tick, because that tick lacks its success, too.
func (e *Evidence) lacksOKSince() (from time.Time) {
	if !e.Streak.LastOK.IsZero() {
		return e.Streak.LastOK
	}
	from = e.Streak.First
	for _, r := range e.Running {
		began := r.Started
		if r.Trigger == run.Scheduled && !r.Tick.IsZero() {
			began = r.Tick.Add(-1)
		}
		if from.IsZero() || began.Before(from) {
			from = began
		}
	}
	return from
}

// slowRun reports whether a run in progress takes too long: longer than warn_after, or without that key much longer than the job's earlier runs. Of several such
// runs it returns the one that began first.
func slowRun(info journal.JobInfo, e Evidence, now time.Time) (c Condition, slow bool) {
	runs := slices.DeleteFunc(slices.Clone(e.Running), func(r journal.Record) bool { return r.Outcome != journal.OutcomeRunning || r.Started.IsZero() })
	if len(runs) == 0 {
		return c, false
	}
	r := slices.MinFunc(runs, func(a, b journal.Record) int { return a.Started.Compare(b.Started) })
	usual, known := usualDuration(e.Took)
	limit := millis(info.WarnAfterMS)
	if limit == 0 {
		if !known {
			return c, false
		}
		limit, c.Unset = max(slowFactor*usual, slowAfter), true
	}
	if now.Sub(r.Started) <= limit {
		return c, false
	}
	c.Code, c.Since = Slow, r.Started.Add(limit)
	c.Message = fmt.Sprintf("run %s of job %s has been running on %s since %s", r.RunID, info.Name, r.Replica, r.Started.UTC().Format(time.RFC3339))
	if known {
		c.Message += fmt.Sprintf("; the job usually takes %v", roundUsual(usual))
	}
	return c, true
}

func roundUsual(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

// overdueSince reports whether the last tick before the last instant of expect_by came after from, the time since which the job has lacked a success. It returns
// the first instant of expect_by after the oldest such tick. A tick at an instant of expect_by has until the next one. The last tick of an expired job is
// overdue for [problemOfExpired].
func overdueSince(zones *cronspec.Zones, info journal.JobInfo, specs []*cronspec.Schedule, from, now time.Time) (since time.Time, overdue bool) {
	at, err := time.Parse("15:04", info.ExpectBy)
	zone, unknown := zones.Location(info.Timezone)
	if err != nil || unknown != nil {
		return since, false
	}
	due := clockOn(now.In(zone), 0, at)
	if due.After(now) {
		due = clockOn(now.In(zone), -1, at)
	}
	oldest, last := tickAfter(specs, from), tickBefore(specs, due)
	if !from.Before(last) || oldest.IsZero() || isOver(specs, last, now) {
		return since, false
	}
	if since = clockOn(oldest.In(zone), 0, at); !since.After(oldest) {
		since = clockOn(oldest.In(zone), 1, at)
	}
	return since, true
}

// clockOn returns the instant at which the clock shows the hour and minute of at, in the zone of day and as many days later.
func clockOn(day time.Time, later int, at time.Time) time.Time {
	return time.Date(day.Year(), day.Month(), day.Day()+later, at.Hour(), at.Minute(), 0, 0, day.Location())
}
