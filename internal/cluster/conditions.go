package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
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
	Message string    `json:"message"`
	// Unset is true if the configuration sets no limit, so the condition is only a guess from earlier runs.
	Unset bool `json:"-"`
}

const (
	// Without warn_after, a run is slow if it takes longer than slowAfter, and longer than slowFactor times the median of at least enoughRuns earlier runs.
	slowFactor = 4
	enoughRuns = 3
	slowAfter  = time.Minute
)

// ConditionsOf returns the conditions of a job. recent has its newest records, from new to old; lastOK is the end of its newest success, or zero.
func ConditionsOf(zones *cronspec.Zones, info journal.JobInfo, recent []journal.Record, lastOK time.Time, paused bool, now time.Time) (list []Condition) {
	for _, r := range slices.Backward(recent) {
		if c, slow := slowRun(info, r, recent, now); slow {
			list = append(list, c)
			break
		}
	}
	if paused || !info.Enabled {
		return list
	}
	if limit := millis(info.StaleAfterMS); limit > 0 && !lastOK.IsZero() && now.Sub(lastOK) > limit {
		list = append(list, Condition{Code: Stale, Since: lastOK.Add(limit),
			Message: fmt.Sprintf("job %s has not ended ok since %s, for longer than stale_after (%v)", info.Name, lastOK.UTC().Format(time.RFC3339), limit)})
	}
	if due, overdue := overdueSince(zones, info, lastOK, now); overdue {
		list = append(list, Condition{Code: Overdue, Since: due,
			Message: fmt.Sprintf("job %s has not ended ok by %s (expect_by)", info.Name, due.Format("15:04 MST on 2006-01-02"))})
	}
	return list
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// slowRun reports whether a run in progress takes too long: longer than warn_after, or without that key much longer than the job's earlier runs.
func slowRun(info journal.JobInfo, r journal.Record, recent []journal.Record, now time.Time) (c Condition, slow bool) {
	if r.Outcome != journal.OutcomeRunning || r.Started.IsZero() {
		return c, false
	}
	usual, known := UsualDuration(recent)
	limit := millis(info.WarnAfterMS)
	if limit == 0 {
		if !known {
			return c, false
		}
		limit, c.Unset = max(slowFactor*usual, slowAfter), true
	}
	takes := now.Sub(r.Started)
	if takes <= limit {
		return c, false
	}
	c.Code, c.Since = Slow, r.Started.Add(limit)
	c.Message = fmt.Sprintf("run %s of job %s has been running for %v on %s", r.RunID, info.Name, takes.Round(time.Second), r.Replica)
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

// UsualDuration returns the median of the durations of the runs that ended `ok`. It is unknown if there are only few of them.
func UsualDuration(recent []journal.Record) (usual time.Duration, known bool) {
	var all []time.Duration
	for _, r := range recent {
		if r.Outcome == journal.OutcomeOK && r.DurationMS != nil {
			all = append(all, millis(*r.DurationMS))
		}
	}
	if len(all) < enoughRuns {
		return 0, false
	}
	slices.Sort(all)
	return all[len(all)/2], true
}

// overdueSince returns the last instant of expect_by, and whether the job's tick of the day before that instant has not ended `ok`. A chained job has no
// schedule of its own, so each of its days counts.
func overdueSince(zones *cronspec.Zones, info journal.JobInfo, lastOK, now time.Time) (due time.Time, overdue bool) {
	at, err := time.Parse("15:04", info.ExpectBy)
	if err != nil {
		return due, false // not set
	}
	zone, err := zones.Location(info.Timezone)
	if err != nil {
		return due, false
	}
	local := now.In(zone)
	if due = time.Date(local.Year(), local.Month(), local.Day(), at.Hour(), at.Minute(), 0, 0, zone); due.After(now) {
		due = time.Date(local.Year(), local.Month(), local.Day()-1, at.Hour(), at.Minute(), 0, 0, zone)
	}
	tick := due.Add(-24 * time.Hour)
	if len(info.After) == 0 {
		if tick = lastTick(zones, info, due); tick.IsZero() {
			return due, false
		}
	}
	return due, !lastOK.IsZero() && lastOK.Before(tick) // without any success, the job may be new
}

// lastTick returns the last tick of a job within the day before an instant; zero if there is none.
func lastTick(zones *cronspec.Zones, info journal.JobInfo, until time.Time) (last time.Time) {
	spec, _, err := scheduleOf(zones, info)
	if err != nil {
		return last
	}
	for _, back := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} { // a job may have a tick each second
		for at := spec.Next(until.Add(-back)); !at.IsZero() && !at.After(until); at = spec.Next(at) {
			last = at
		}
		if !last.IsZero() {
			return last
		}
	}
	return last
}

// LastSuccesses returns the end of the newest success of each job with stale_after or expect_by. recent has the newest records of jobs; for jobs without a success
// among them, the streaks of failures are read. With an error that wraps [journal.ErrCorrupt], the other times are valid.
func LastSuccesses(ctx context.Context, j *journal.Journal, jobs []journal.JobInfo, recent map[string][]journal.Record) (map[string]time.Time, error) {
	last, unknown := map[string]time.Time{}, []string(nil)
	for _, info := range jobs {
		if info.StaleAfterMS == 0 && info.ExpectBy == "" {
			continue
		}
		i := slices.IndexFunc(recent[info.Name], func(r journal.Record) bool { return r.Outcome == journal.OutcomeOK })
		if i < 0 {
			unknown = append(unknown, info.Name)
			continue
		}
		last[info.Name] = recent[info.Name][i].Finished
	}
	if len(unknown) == 0 {
		return last, nil
	}
	streaks, err := j.Streaks(ctx, unknown)
	for name, s := range streaks {
		last[name] = s.LastOK
	}
	return last, err //nolint:wrapcheck // the error names the operation
}
