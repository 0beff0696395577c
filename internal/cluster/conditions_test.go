package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
)

const clockLayout = "2006-01-02 15:04:05"

// clock returns an instant of UTC; zero for "".
func clock(t *testing.T, text string) (when time.Time) {
	t.Helper()
	if text == "" {
		return when
	}
	when, err := time.ParseInLocation(clockLayout, text, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

// conditionsAt returns the conditions of the first job as "code since". The others are before it in its chain, or have nothing to do with it.
func conditionsAt(t *testing.T, jobs []journal.JobInfo, evidence map[string]Evidence, now string) (got []string) {
	t.Helper()
	for _, c := range ConditionsOf(nil, jobs, jobs[0], evidence, clock(t, now)) {
		got = append(got, c.Code+" "+c.Since.UTC().Format(clockLayout))
		if later := ConditionsOf(nil, jobs, jobs[0], evidence, clock(t, now).Add(time.Second)); !slices.Contains(later, c) {
			t.Errorf("at %s: %+v; a second later %+v", now, c, later)
		}
		if c.Unset != (c.Code == Slow && jobs[0].WarnAfterMS == 0) || c.Message == "" {
			t.Errorf("at %s: %+v", now, c)
		}
	}
	return got
}

// TestSlowRuns: each limit is exceeded by a moment, or just not. Of several runs the one that began first counts.
func TestSlowRuns(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	plain := journal.JobInfo{Name: "j", Schedule: []string{"0 3 * * *"}, Timezone: "UTC", Enabled: true}
	warned := plain
	warned.WarnAfterMS = (5 * time.Second).Milliseconds()
	for n, tc := range []struct {
		info    journal.JobInfo
		started []string
		took    []time.Duration
		now     string
		want    []string
	}{
		{info: warned, started: []string{"2026-11-02 12:00:00"}, now: "2026-11-02 12:00:05"},
		{info: warned, started: []string{"2026-11-02 12:00:00"}, now: "2026-11-02 12:00:06", want: []string{"slow 2026-11-02 12:00:05"}},
		{info: warned, started: []string{"2026-11-02 12:00:03", "2026-11-02 12:00:00", "2026-11-02 12:00:02"}, now: "2026-11-02 12:00:10", want: []string{"slow 2026-11-02 12:00:05"}},
		{info: plain, started: []string{"2026-11-02 12:00:00"}, took: []time.Duration{10 * minute, 30 * minute, 20 * minute}, now: "2026-11-02 13:20:00"},
		{info: plain, started: []string{"2026-11-02 12:00:00"}, took: []time.Duration{10 * minute, 30 * minute, 20 * minute}, now: "2026-11-02 13:20:01", want: []string{"slow 2026-11-02 13:20:00"}},
		{info: plain, started: []string{"2026-11-02 12:00:00"}, took: []time.Duration{10 * minute, 20 * minute}, now: "2026-11-03 12:00:00"}, // too few runs to know what is usual
		{info: plain, started: []string{"2026-11-02 12:00:00"}, took: []time.Duration{1, 1, 1}, now: "2026-11-02 12:01:00"},
		{info: plain, started: []string{"2026-11-02 12:00:00"}, took: []time.Duration{1, 1, 1}, now: "2026-11-02 12:01:01", want: []string{"slow 2026-11-02 12:01:00"}},
	} {
		e := Evidence{Took: tc.took}
		for _, at := range tc.started {
			e.Running = append(e.Running, journal.Record{RunID: at, Job: "j", Outcome: journal.OutcomeRunning, Started: clock(t, at)})
		}
		e.Running = append(e.Running, journal.Record{RunID: "cut off", Job: "j", Outcome: journal.OutcomeAbandoned, Started: clock(t, "2026-11-01 12:00:00")})
		if got := conditionsAt(t, []journal.JobInfo{tc.info}, map[string]Evidence{"j": e}, tc.now); !slices.Equal(got, tc.want) {
			t.Errorf("%d: got %q, want %q", n, got, tc.want)
		}
	}
}

// TestMissingSuccess: a job lacks a success since the last one or, without any, since its first sign of life. Ticks in a pause do not count,
// nor what was before the job was added or enabled, or before starts_at.
func TestMissingSuccess(t *testing.T) {
	t.Parallel()
	daily := journal.JobInfo{Name: "j", Schedule: []string{"0 3 * * *"}, Timezone: "Europe/Berlin", Enabled: true, ExpectBy: "06:30"}
	with := func(of journal.JobInfo, change func(*journal.JobInfo)) journal.JobInfo {
		change(&of)
		return of
	}
	scheduled := func(expressions ...string) journal.JobInfo {
		return with(daily, func(j *journal.JobInfo) { j.Schedule = expressions })
	}
	expiring := with(daily, func(j *journal.JobInfo) { j.ExpiresAt = clock(t, "2026-11-27 03:00:00") })
	starting := with(daily, func(j *journal.JobInfo) { j.StartsAt = clock(t, "2026-11-27 02:00:00") })
	stale := with(daily, func(j *journal.JobInfo) {
		j.ExpectBy, j.Timezone, j.StaleAfterMS = "", "UTC", (48 * time.Hour).Milliseconds()
	})
	for n, tc := range []struct {
		info                  journal.JobInfo
		lastOK, first, pauses string // pauses: the newest tick that a pause skipped
		tick, started         string // of a run in progress
		trigger               string // "" for the schedule
		paused                bool
		since                 string // the time since which replicas have described the job so
		now                   string
		want                  []string
	}{
		{info: stale, lastOK: "2026-11-01 12:00:00", now: "2026-11-03 12:00:00"},
		{info: stale, lastOK: "2026-11-01 12:00:00", now: "2026-11-03 12:00:01", want: []string{"stale 2026-11-03 12:00:00"}},
		{info: stale, lastOK: "2026-11-01 12:00:00", now: "2027-11-03 12:00:01", want: []string{"stale 2026-11-03 12:00:00"}},
		{info: stale, lastOK: "2026-11-01 12:00:00", now: "2026-11-03 12:00:01", paused: true},
		{info: with(stale, func(j *journal.JobInfo) { j.Enabled = false }), lastOK: "2026-11-01 12:00:00", now: "2026-11-03 12:00:01"},
		{info: stale, now: "2026-11-03 12:00:01"}, // it is new
		{info: stale, first: "2026-11-01 12:00:00", now: "2026-11-03 12:00:00"},
		{info: stale, first: "2026-11-01 12:00:00", now: "2026-11-03 12:00:01", want: []string{"stale 2026-11-03 12:00:00"}},
		{info: stale, first: "2026-11-01 12:00:00", lastOK: "2026-11-02 12:00:00", now: "2026-11-03 12:00:01"},
		{info: stale, tick: "2026-11-01 12:00:01", started: "2026-11-01 12:30:00", now: "2026-11-03 12:00:01", want: []string{"stale 2026-11-03 12:00:00"}},
		{info: stale, tick: "2020-11-01 12:00:01", started: "2026-11-01 12:30:00", trigger: "manual", now: "2026-11-03 12:30:00"}, // an old tick that a user runs again
		{info: stale, tick: "2020-11-01 12:00:01", started: "2026-11-01 12:30:00", trigger: "manual", now: "2026-11-03 12:30:01", want: []string{"stale 2026-11-03 12:30:00"}},
		{info: stale, lastOK: "2026-11-01 12:00:00", pauses: "2026-11-09 03:00:00", now: "2026-11-11 03:00:00"},
		{info: stale, lastOK: "2026-11-01 12:00:00", pauses: "2026-11-09 03:00:00", now: "2026-11-11 03:00:01", want: []string{"stale 2026-11-11 03:00:00"}},
		{info: stale, lastOK: "2026-11-09 12:00:00", pauses: "2026-11-01 03:00:00", now: "2026-11-11 12:00:00"},
		{info: with(stale, func(j *journal.JobInfo) { j.ExpiresAt = clock(t, "2026-11-10 03:00:00") }), lastOK: "2026-11-01 03:01:00", now: "2026-11-09 02:59:58", want: []string{"stale 2026-11-03 03:01:00"}},
		{info: with(stale, func(j *journal.JobInfo) { j.ExpiresAt = clock(t, "2026-11-10 03:00:00") }), lastOK: "2026-11-01 03:01:00", now: "2026-11-09 03:00:01"}, // no tick is left
		{info: with(stale, func(j *journal.JobInfo) { j.StartsAt = clock(t, "2026-12-01 00:00:00") }), lastOK: "2026-11-01 12:00:00", now: "2026-11-30 12:00:00"},  // a manual run, a month before the first tick
		{info: with(stale, func(j *journal.JobInfo) { j.StartsAt = clock(t, "2026-12-01 00:00:00") }), first: "2026-11-01 12:00:00", now: "2026-12-03 00:00:00"},
		{info: with(stale, func(j *journal.JobInfo) { j.StartsAt = clock(t, "2026-12-01 00:00:00") }), first: "2026-11-01 12:00:00", now: "2026-12-03 00:00:01", want: []string{"stale 2026-12-03 00:00:00"}},
		{info: with(stale, func(j *journal.JobInfo) { j.StartsAt = clock(t, "2026-10-01 00:00:00") }), lastOK: "2026-11-01 12:00:00", now: "2026-11-03 12:00:01", want: []string{"stale 2026-11-03 12:00:00"}},

		{info: stale, lastOK: "2026-11-01 12:00:00", since: "2026-11-09 12:00:00", now: "2026-11-11 12:00:00"},
		{info: stale, lastOK: "2026-11-01 12:00:00", since: "2026-11-09 12:00:00", now: "2026-11-11 12:00:01", want: []string{"stale 2026-11-11 12:00:00"}},
		{info: stale, lastOK: "2026-11-01 12:00:00", since: "2026-10-09 12:00:00", now: "2026-11-03 12:00:01", want: []string{"stale 2026-11-03 12:00:00"}},
		{info: stale, first: "2026-11-01 12:00:00", since: "2026-11-09 12:00:00", now: "2026-11-11 12:00:00"},
		{info: stale, since: "2026-11-01 12:00:00", now: "2026-11-11 12:00:00"}, // it may have a tick once a month
		{info: stale, lastOK: "2026-11-01 12:00:00", pauses: "2026-11-09 03:00:00", since: "2026-11-08 12:00:00", now: "2026-11-11 03:00:01", want: []string{"stale 2026-11-11 03:00:00"}},

		{info: daily, lastOK: "2026-11-20 02:30:00", since: "2026-11-27 02:00:00", now: "2026-11-28 05:29:59"}, // enabled after the tick
		{info: daily, lastOK: "2026-11-20 02:30:00", since: "2026-11-27 02:00:00", now: "2026-11-28 05:30:00", want: []string{"overdue 2026-11-28 05:30:00"}},
		{info: daily, lastOK: "2026-11-20 02:30:00", since: "2026-11-27 01:59:59", now: "2026-11-27 05:29:59"}, // enabled before the tick
		{info: daily, lastOK: "2026-11-20 02:30:00", since: "2026-11-27 01:59:59", now: "2026-11-27 05:30:00", want: []string{"overdue 2026-11-27 05:30:00"}},
		{info: daily, lastOK: "2026-11-26 02:30:00", now: "2026-11-27 05:29:59"}, // 06:29:59 in Berlin
		{info: daily, lastOK: "2026-11-26 02:30:00", now: "2026-11-27 05:30:00", want: []string{"overdue 2026-11-27 05:30:00"}},
		{info: daily, lastOK: "2026-11-26 02:30:00", now: "2026-11-28 05:29:00", want: []string{"overdue 2026-11-27 05:30:00"}},
		{info: daily, lastOK: "2026-11-26 02:30:00", now: "2026-12-31 12:00:00", want: []string{"overdue 2026-11-27 05:30:00"}},
		{info: daily, lastOK: "2026-11-27 02:00:01", now: "2026-11-27 05:30:00"},
		{info: daily, lastOK: "2026-11-26 02:30:00", now: "2026-11-27 05:30:00", paused: true},
		{info: expiring, lastOK: "2026-11-26 02:30:00", now: "2026-12-04 01:59:59", want: []string{"overdue 2026-11-27 05:30:00"}}, // its last tick was a week ago
		{info: expiring, lastOK: "2026-11-26 02:30:00", now: "2026-12-04 02:00:01"},
		{info: expiring, lastOK: "2026-11-20 02:30:00", now: "2026-12-04 01:59:59", want: []string{"overdue 2026-11-21 05:30:00"}}, // earlier ticks have been overdue for longer
		{info: expiring, lastOK: "2026-11-20 02:30:00", now: "2026-12-04 02:00:01"},
		{info: daily, now: "2026-11-27 05:30:00"}, // it is new
		{info: daily, first: "2026-11-26 12:00:00", now: "2026-11-27 05:29:59"},
		{info: daily, first: "2026-11-26 12:00:00", now: "2026-11-27 05:30:00", want: []string{"overdue 2026-11-27 05:30:00"}},
		{info: daily, tick: "2026-11-27 02:00:00", started: "2026-11-27 02:00:01", now: "2026-11-27 05:30:00", want: []string{"overdue 2026-11-27 05:30:00"}}, // the first run hangs
		{info: daily, tick: "2026-11-27 02:00:00", started: "2026-11-27 02:10:00", trigger: "manual", now: "2026-11-27 05:30:00"},
		{info: daily, lastOK: "2026-11-20 02:30:00", pauses: "2026-11-26 02:00:00", now: "2026-11-26 12:00:00"}, // resumed before the next tick
		{info: daily, lastOK: "2026-11-20 02:30:00", pauses: "2026-11-26 02:00:00", now: "2026-11-27 05:29:59"},
		{info: daily, lastOK: "2026-11-20 02:30:00", pauses: "2026-11-26 02:00:00", now: "2026-11-27 05:30:00", want: []string{"overdue 2026-11-27 05:30:00"}},
		{info: daily, lastOK: "2026-03-29 01:30:00", now: "2026-03-29 04:30:00"},    // the clock is set forward at 01:00Z, so the tick is at 03:00 = 01:00Z
		{info: starting, lastOK: "2026-11-20 02:30:00", now: "2026-11-27 05:29:59"}, // a manual run, before the first tick, which is at starts_at
		{info: starting, lastOK: "2026-11-20 02:30:00", now: "2026-11-27 05:30:00", want: []string{"overdue 2026-11-27 05:30:00"}},
		{info: starting, tick: "2026-11-27 02:00:00", started: "2026-11-27 02:00:01", now: "2026-11-27 05:30:00", want: []string{"overdue 2026-11-27 05:30:00"}}, // the first run hangs
		{info: starting, lastOK: "2026-11-27 02:00:01", now: "2026-11-27 05:30:00"},
		{info: starting, lastOK: "2026-11-20 02:30:00", pauses: "2026-11-27 02:00:00", now: "2026-11-27 05:30:00"},
		{info: scheduled("45 6 * * *"), lastOK: "2026-10-23 05:00:00", now: "2026-10-24 04:45:01"}, // that tick has until the next day
		{info: scheduled("45 6 * * *"), lastOK: "2026-10-23 05:00:00", now: "2026-10-25 05:29:59"}, // and that day has 25 hours
		{info: scheduled("45 6 * * *"), lastOK: "2026-10-23 05:00:00", now: "2026-10-25 05:30:00", want: []string{"overdue 2026-10-25 05:30:00"}},
		{info: scheduled("30 6 * * *"), lastOK: "2026-11-26 05:40:00", now: "2026-11-27 05:30:00"}, // a tick at the instant itself
		{info: scheduled("30 6 * * *"), lastOK: "2026-11-26 05:40:00", now: "2026-11-28 05:29:59"},
		{info: scheduled("30 6 * * *"), lastOK: "2026-11-26 05:40:00", now: "2026-11-28 05:30:00", want: []string{"overdue 2026-11-28 05:30:00"}},
		{info: scheduled("0 3 * * mon-fri"), lastOK: "2026-11-27 02:30:00", now: "2026-11-29 12:00:00"}, // a Sunday
		{info: scheduled("0 3 * * fri"), lastOK: "2026-11-20 02:30:00", now: "2026-12-03 12:00:00", want: []string{"overdue 2026-11-27 05:30:00"}},
		{info: scheduled("0 3 1 * *"), lastOK: "2026-10-01 02:30:00", now: "2026-11-25 12:00:00", want: []string{"overdue 2026-11-01 05:30:00"}},
		{info: scheduled("0 3 1 * *", "0 12 * * sat"), lastOK: "2026-11-01 02:30:00", now: "2026-11-08 05:30:00", want: []string{"overdue 2026-11-08 05:30:00"}},
		{info: scheduled("* * * * * *"), lastOK: "2026-11-27 05:29:59", now: "2026-11-27 05:30:30"},
		{info: scheduled("* * * * * *"), lastOK: "2026-11-27 05:29:58", now: "2026-11-27 05:30:30", want: []string{"overdue 2026-11-27 05:30:00"}},
	} {
		e := Evidence{Paused: tc.paused, Streak: journal.Streak{LastOK: clock(t, tc.lastOK), First: clock(t, tc.first), Paused: clock(t, tc.pauses)}}
		if tc.started != "" {
			trigger := "schedule"
			if tc.trigger != "" {
				trigger = tc.trigger
			}
			// No warn_after, and no earlier runs: it is not slow.
			e.Running = []journal.Record{{RunID: "r", Job: "j", Trigger: trigger, Tick: clock(t, tc.tick), Outcome: journal.OutcomeRunning, Started: clock(t, tc.started)}}
		}
		tc.info.Since = clock(t, tc.since)
		if got := conditionsAt(t, []journal.JobInfo{tc.info}, map[string]Evidence{"j": e}, tc.now); !slices.Equal(got, tc.want) {
			t.Errorf("%d: got %q, want %q", n, got, tc.want)
		}
	}
}

// TestMissingSuccessOfAChain: the ticks of a chained job are those that all jobs at the start of its chain have in common, and it waits for the pauses of all jobs
// before it.
func TestMissingSuccessOfAChain(t *testing.T) {
	t.Parallel()
	job := func(name string, schedule string, after ...string) journal.JobInfo {
		info := journal.JobInfo{Name: name, Timezone: "UTC", Enabled: true, After: after}
		if schedule != "" {
			info.Schedule = []string{schedule}
		}
		return info
	}
	child := job("child", "", "middle")
	child.ExpectBy, child.StaleAfterMS = "06:30", (240 * time.Hour).Milliseconds()
	weekly, daily, middle := job("weekly", "0 3 * * fri"), job("daily", "0 3 * * *"), job("middle", "", "weekly", "daily")
	chain := []journal.JobInfo{child, daily, middle, job("other", "* * * * *"), weekly}
	expired := slices.Clone(chain)
	expired[4].ExpiresAt = clock(t, "2026-11-28 00:00:00")
	starting := slices.Clone(chain)
	starting[4].StartsAt = clock(t, "2026-12-01 00:00:00")
	atTick := slices.Clone(chain)
	atTick[4].StartsAt = clock(t, "2026-11-27 03:00:00")
	enabled := slices.Clone(chain)
	enabled[4].Since, enabled[1].Since = clock(t, "2026-11-28 00:00:00"), clock(t, "2026-11-01 00:00:00")
	for n, tc := range []struct {
		jobs     []journal.JobInfo
		lastOK   string
		evidence map[string]Evidence // of the others
		now      string
		want     []string
	}{
		{jobs: chain, lastOK: "2026-11-20 03:30:00", now: "2026-11-27 06:29:59"}, // the daily job alone gives it no tick
		{jobs: chain, lastOK: "2026-11-20 03:30:00", now: "2026-11-27 06:30:00", want: []string{"overdue 2026-11-27 06:30:00"}},
		{jobs: chain, lastOK: "2026-11-20 03:30:00", now: "2026-11-30 06:30:00", want: []string{"stale 2026-11-30 03:30:00", "overdue 2026-11-27 06:30:00"}},
		{jobs: expired, lastOK: "2026-11-20 03:30:00", now: "2026-11-30 06:30:00", want: []string{"overdue 2026-11-27 06:30:00"}},
		{jobs: chain, lastOK: "2026-11-27 03:30:00", now: "2026-12-03 23:00:00"},
		{jobs: chain, lastOK: "2026-11-20 03:30:00", now: "2026-11-30 06:30:00", evidence: map[string]Evidence{"daily": {Paused: true}}},
		{jobs: chain, lastOK: "2026-11-20 03:30:00", now: "2026-11-30 06:30:00", evidence: map[string]Evidence{"other": {Paused: true}}, want: []string{"stale 2026-11-30 03:30:00", "overdue 2026-11-27 06:30:00"}},
		{jobs: chain, lastOK: "2026-11-20 03:30:00", now: "2026-11-30 06:30:00", evidence: map[string]Evidence{"weekly": {Streak: journal.Streak{Paused: clock(t, "2026-11-27 03:00:00")}}}},
		{jobs: enabled, lastOK: "2026-11-20 03:30:00", now: "2026-12-04 06:29:59"},
		{jobs: starting, lastOK: "2026-11-20 03:30:00", now: "2026-12-08 03:30:00", want: []string{"overdue 2026-12-04 06:30:00"}}, // the ticks of the chain begin with its last job
		{jobs: atTick, lastOK: "2026-11-20 03:30:00", now: "2026-11-27 06:29:59"},
		{jobs: atTick, lastOK: "2026-11-20 03:30:00", now: "2026-11-27 06:30:00", want: []string{"overdue 2026-11-27 06:30:00"}}, // the first tick is at starts_at
		{jobs: enabled, lastOK: "2026-11-20 03:30:00", now: "2026-12-04 06:30:00", want: []string{"overdue 2026-12-04 06:30:00"}},
		{jobs: slices.Concat(chain[:1], chain[2:]), lastOK: "2026-11-20 03:30:00", now: "2026-11-30 06:30:00", want: []string{"stale 2026-11-30 03:30:00"}}, // the ticks are unknown
	} {
		evidence := map[string]Evidence{"child": {Streak: journal.Streak{LastOK: clock(t, tc.lastOK)}}}
		for name, e := range tc.evidence {
			evidence[name] = e
		}
		for _, parents := range [][]string{{"weekly", "daily"}, {"daily", "weekly"}} {
			jobs := slices.Clone(tc.jobs)
			jobs[slices.IndexFunc(jobs, func(j journal.JobInfo) bool { return j.Name == "middle" })].After = parents
			if got := conditionsAt(t, jobs, evidence, tc.now); !slices.Equal(got, tc.want) {
				t.Errorf("%d, after %q: got %q, want %q", n, parents, got, tc.want)
			}
		}
	}
}

// TestSchedulesWithoutACommonTick: the search ends, and finds nothing.
func TestSchedulesWithoutACommonTick(t *testing.T) {
	t.Parallel()
	jobs := []journal.JobInfo{{Name: "even", Schedule: []string{"0 0-58/2 * * * *"}, Timezone: "UTC"}, {Name: "odd", Schedule: []string{"0 1-59/2 * * * *"}, Timezone: "UTC"}, {Name: "child", After: []string{"even", "odd"}}}
	specs, now := schedulesOf(nil, jobs, jobs[2]), clock(t, "2026-11-27 12:00:00")
	if at := tickBefore(specs, now); len(specs) != 2 || !at.IsZero() {
		t.Errorf("%d schedules, tick %v", len(specs), at)
	}
	if at := tickAfter(specs, now); !at.IsZero() {
		t.Error(at)
	}
}

// TestSlowWhileTicksAreSkipped: a run that hangs stays slow, however many ticks are skipped meanwhile, and whatever number of records a status is asked for. The
// ticks push the earlier runs out of the history. The slow run is found also if more runs are in progress than a status lists.
func TestSlowWhileTicksAreSkipped(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	now := time.Now().Truncate(time.Second)
	c.describe(t, journal.JobInfo{Name: "hangs", Enabled: true, Parallel: 20, PerTick: 1})
	for n := range 10 {
		r := ended("hangs", fmt.Sprint("ok", n))
		r.Started, r.Finished, r.DurationMS = now.Add(-time.Hour), now.Add(time.Duration(n-3600)*time.Second), new(int64(10_000))
		c.record(t, r)
	}
	elector := c.elector(t, "a")
	for n := range 15 {
		at := now.Add(time.Duration(n-1200) * time.Second)
		c.record(t, journal.Record{RunID: fmt.Sprint("run", n), Job: "hangs", Tick: at, Trigger: "schedule", Attempt: 1, Token: 1, Replica: "a", Outcome: journal.OutcomeRunning, Started: at})
		if r := elector.Claim(t.Context(), []election.Claim{{Lock: election.JobLock("hangs"), ID: fmt.Sprint("run", n), Slots: 20, Trigger: "manual", Lease: time.Minute}})[0]; r.Verdict != election.Granted {
			t.Fatalf("%+v", r)
		}
	}
	o := c.operator(t, Config{})
	var first Condition
	for n := range 70 {
		for _, recent := range []int{2, 0} {
			if n > 0 && n%9 != 0 {
				break
			}
			st, err := o.Status(t.Context(), StatusRequest{Recent: recent})
			if err != nil {
				t.Fatal(err)
			}
			j := st.Jobs[0]
			if n+recent == 2 && len(j.Conditions) == 1 {
				first = j.Conditions[0]
			}
			if len(j.Conditions) != 1 || j.Conditions[0] != first || first.Code != Slow || !first.Since.Equal(now.Add(-1140*time.Second)) || j.UsualMS == nil || *j.UsualMS != 10_000 {
				t.Fatalf("after %d skipped ticks, %d records: %+v, usually %v", n, recent, j.Conditions, j.UsualMS)
			}
		}
		at := now.Add(time.Duration(n-100) * time.Second)
		c.record(t, journal.Record{RunID: fmt.Sprint("tick", n), Job: "hangs", Tick: at, Replica: "a", Outcome: journal.OutcomeSkipped, Reason: "overlap", Finished: at})
	}
}
