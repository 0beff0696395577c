package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A recorder writes the scheduler's records to the journal, and counts recoveries. monitor may be nil.
type recorder struct {
	journal *journal.Journal
	monitor *monitor
}

// Record writes records to the journal.
func (r recorder) Record(ctx context.Context, records []run.Record) error {
	if err := r.journal.Record(ctx, records); err != nil {
		return err //nolint:wrapcheck // the error names the operation
	}
	r.monitor.countRecoveries(records)
	return nil
}

// streakFields returns the failures of a job since its last success, as arguments of a log line.
func (r recorder) streakFields(ctx context.Context, job string) []any {
	streaks, err := r.journal.Streaks(ctx, []string{job})
	s := streaks[job]
	if err != nil || s.Count == 0 {
		return nil
	}
	about := []any{"failures", s.Count, "failing_since", s.Since.Format(time.RFC3339)}
	if !s.LastOK.IsZero() {
		about = append(about, "last_ok", s.LastOK.Format(time.RFC3339))
	}
	return about
}

// DescribeJobs returns the descriptions of jobs for readers without the configuration, such as the status command. A job with per_tick = "all" is described by
// its instances, and without any by itself, so that users see it.
func DescribeJobs(cfg *config.Config, now time.Time) []journal.JobInfo {
	infos := make([]journal.JobInfo, 0, len(cfg.Jobs))
	for _, j := range slices.Concat(cfg.Jobs, cfg.Unplaced()) {
		infos = append(infos, journal.JobInfo{Name: j.Name, Everywhere: j.Everywhere && j.Of == "", Schedule: j.Schedule, After: j.After, Timezone: j.Location.String(),
			Except: j.Except, ExceptDates: describedDates(j.ExceptDates, now, cfg.History.MaxAge), StartsAt: j.StartsAt, ExpiresAt: j.ExpiresAt,
			Parallel: j.Parallel, PerTick: j.PerTick, Digest: j.Digest, Enabled: j.Enabled, Where: j.Where, Tags: j.Tags, Pool: j.Pool, PoolSlots: j.PoolSlots,
			JitterMS: j.Jitter.Milliseconds(), WarnAfterMS: j.WarnAfter.Milliseconds(), StaleAfterMS: j.StaleAfter.Milliseconds(), ExpectBy: j.ExpectBy, Seen: now})
	}
	return infos
}

// dateJobs sets Since in the descriptions of jobs: to the earliest date of a description in known that has the same ticks, or otherwise to now. It ignores dates
// after now: the clock of Redis was set back, and until that time a job would not be stale or overdue.
func dateJobs(infos, known []journal.JobInfo, now time.Time) []journal.JobInfo {
	places := make(map[string]int, len(infos))
	for i := range infos {
		infos[i].Since, places[infos[i].Name] = now, i
	}
	for k := range known {
		if i, has := places[known[k].Name]; has && known[k].Since.Before(infos[i].Since) && haveSameTicks(&known[k], &infos[i]) {
			infos[i].Since = known[k].Since
		}
	}
	return infos
}

// haveSameTicks compares the ticks of two descriptions. It ignores ExceptDates, because past dates drop out of them.
func haveSameTicks(a, b *journal.JobInfo) bool {
	return a.Enabled == b.Enabled && a.Timezone == b.Timezone && slices.Equal(a.Schedule, b.Schedule) && slices.Equal(a.After, b.After) &&
		slices.Equal(a.Except, b.Except) && a.StartsAt.Equal(b.StartsAt) && a.ExpiresAt.Equal(b.ExpiresAt)
}

func configurationOf(cfg *config.Config) journal.Configuration {
	c := journal.Configuration{Jobs: make(map[string]journal.JobConfig, len(cfg.Jobs))}
	for _, s := range cfg.Settings.Common {
		c.Common = append(c.Common, journal.Setting(s))
	}
	for job, digest := range cfg.JobDigests() {
		c.Jobs[job] = journal.JobConfig{Digest: digest, Own: cfg.Settings.Own[job]}
	}
	return c
}

// mostPastDates is the maximum number of past days of a calendar in the description of a job, because calendars and the history may be long.
const mostPastDates = 400

// describedDates returns the days of a calendar that readers need for a job's next tick, or to explain a tick in the history. dates must be sorted. Two more
// days are kept, because a local date may be behind the date in UTC.
func describedDates(dates []string, now time.Time, history time.Duration) []string {
	since := func(t time.Time) int {
		i, _ := slices.BinarySearch(dates, t.UTC().AddDate(0, 0, -2).Format(time.DateOnly))
		return i
	}
	return dates[max(since(now.Add(-history)), since(now)-mostPastDates):]
}

// UnfitData returns the error to report for an error of [journal.Journal.CheckFormat] that a retry does not remedy; nil for other errors. It is a usage error
// for data of a newer version, and wraps [redisconn.ErrUnfit] for data of another program.
func UnfitData(err error) error {
	switch {
	case errors.Is(err, journal.ErrNewerFormat):
		return UsageError{err}
	case errors.Is(err, journal.ErrCorrupt):
		return fmt.Errorf("%w: %w; if another program writes that key, take another namespace or database; else delete it",
			redisconn.ErrUnfit, err)
	}
	return nil
}

// requests gives the scheduler access to trigger requests. The journal stores the requests. The lock of a request selects the replica that handles it.
type requests struct {
	journal *journal.Journal
	elector *election.Elector
}

// Subscribe passes the journal's requests to f.
func (r requests) Subscribe(ctx context.Context, f func([]scheduler.Request)) {
	r.journal.Subscribe(ctx, func(heard []journal.Request) {
		list := make([]scheduler.Request, len(heard))
		for i, q := range heard {
			list[i] = scheduler.Request{ID: q.ID, Job: q.Job, Tick: q.Tick, Created: q.Created, Expires: q.Expires}
		}
		f(list)
	})
}

// ClaimTrigger claims a trigger request. The replica that gets the lock of the request handles it.
func (r requests) ClaimTrigger(ctx context.Context, e election.TriggerRequest) election.Result {
	return r.elector.ClaimTrigger(ctx, e)
}

// Answer writes the answer to a request.
func (r requests) Answer(ctx context.Context, a scheduler.Answer) error {
	return r.journal.Answer(ctx, journal.Answer{Request: a.Request, Outcome: a.Outcome, Reason: a.Reason, Replica: a.Replica, RunID: a.RunID})
}
