package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// TestConditionsOfAJob: each limit is exceeded by a moment, or just not.
func TestConditionsOfAJob(t *testing.T) {
	t.Parallel()
	const layout = "2006-01-02 15:04:05"
	at := func(text string) time.Time {
		when, err := time.ParseInLocation(layout, text, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	run := func(outcome journal.Outcome, started string, lasted time.Duration) journal.Record {
		r := journal.Record{RunID: "r" + started, Job: "j", Outcome: outcome, Started: at(started)}
		if outcome != journal.OutcomeRunning {
			r.Finished, r.DurationMS = r.Started.Add(lasted), new(lasted.Milliseconds())
		}
		return r
	}
	var earlier []journal.Record // ok runs of 10, 20 and 30 minutes
	for n := 1; n <= 3; n++ {
		earlier = append(earlier, run(journal.OutcomeOK, "2026-11-01 00:00:00", time.Duration(n)*10*time.Minute))
	}
	running := func(started string, past ...journal.Record) []journal.Record {
		return append([]journal.Record{run(journal.OutcomeRunning, started, 0)}, past...)
	}
	daily := journal.JobInfo{Name: "j", Schedule: []string{"0 3 * * *"}, Timezone: "Europe/Berlin", Enabled: true, ExpectBy: "06:30"}
	weekdays, chained, secondly := daily, daily, daily
	weekdays.Schedule, chained.Schedule, secondly.Schedule = []string{"0 3 * * mon-fri"}, nil, []string{"* * * * * *"}
	chained.After = []string{"parent"}
	plain := journal.JobInfo{Name: "j", Schedule: []string{"0 3 * * *"}, Timezone: "UTC", Enabled: true}
	warned, stale := plain, plain
	warned.WarnAfterMS, stale.StaleAfterMS = (5 * time.Second).Milliseconds(), (48 * time.Hour).Milliseconds()
	disabled := stale
	disabled.Enabled = false

	for n, tc := range []struct {
		info   journal.JobInfo
		recent []journal.Record
		lastOK string
		paused bool
		now    string
		want   []string // "code since"
	}{
		{info: warned, recent: running("2026-11-02 12:00:00"), now: "2026-11-02 12:00:05"},
		{info: warned, recent: running("2026-11-02 12:00:00"), now: "2026-11-02 12:00:06", want: []string{"slow 2026-11-02 12:00:05"}},
		{info: plain, recent: running("2026-11-02 12:00:00", earlier...), now: "2026-11-02 13:20:00"},
		{info: plain, recent: running("2026-11-02 12:00:00", earlier...), now: "2026-11-02 13:20:01", want: []string{"slow 2026-11-02 13:20:00"}},
		{info: plain, recent: running("2026-11-02 12:00:00", earlier[:2]...), now: "2026-11-03 12:00:00"}, // too few runs to know what is usual
		{info: stale, lastOK: "2026-11-01 12:00:00", now: "2026-11-03 12:00:00"},
		{info: stale, lastOK: "2026-11-01 12:00:00", now: "2026-11-03 12:00:01", want: []string{"stale 2026-11-03 12:00:00"}},
		{info: stale, lastOK: "2026-11-01 12:00:00", now: "2026-11-03 12:00:01", paused: true},
		{info: disabled, lastOK: "2026-11-01 12:00:00", now: "2026-11-03 12:00:01"},
		{info: stale, now: "2026-11-03 12:00:01"},                                // no success is known
		{info: daily, lastOK: "2026-11-26 02:30:00", now: "2026-11-27 05:29:59"}, // 06:29:59 in Berlin
		{info: daily, lastOK: "2026-11-26 02:30:00", now: "2026-11-27 05:30:00", want: []string{"overdue 2026-11-27 05:30:00"}},
		{info: daily, lastOK: "2026-11-26 02:30:00", now: "2026-11-28 05:29:00", want: []string{"overdue 2026-11-27 05:30:00"}},
		{info: daily, lastOK: "2026-11-27 02:00:01", now: "2026-11-27 05:30:00"},
		{info: daily, now: "2026-11-27 05:30:00"},                                   // it may be new
		{info: daily, lastOK: "2026-03-29 01:30:00", now: "2026-03-29 04:30:00"},    // the clock is set forward at 01:00Z, so the tick is at 03:00 = 01:00Z
		{info: weekdays, lastOK: "2026-11-27 02:30:00", now: "2026-11-29 12:00:00"}, // a Sunday
		{info: chained, lastOK: "2026-11-26 05:00:00", now: "2026-11-27 05:30:00", want: []string{"overdue 2026-11-27 05:30:00"}},
		{info: secondly, lastOK: "2026-11-27 05:29:59", now: "2026-11-27 05:30:30", want: []string{"overdue 2026-11-27 05:30:00"}},
	} {
		var lastOK time.Time
		if tc.lastOK != "" {
			lastOK = at(tc.lastOK)
		}
		var got []string
		for _, c := range ConditionsOf(nil, tc.info, tc.recent, lastOK, tc.paused, at(tc.now)) {
			got = append(got, fmt.Sprint(c.Code, " ", c.Since.UTC().Format(layout)))
			if c.Unset != (c.Code == Slow && tc.info.WarnAfterMS == 0) || c.Message == "" {
				t.Errorf("%d: %+v", n, c)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%d: got %q, want %q", n, got, tc.want)
		}
	}
}
