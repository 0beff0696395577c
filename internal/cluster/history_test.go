package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/run"
)

// TestHistoryIsSelected reads what the flags of `cronclave history` ask for, sorted by the time that is shown.
func TestHistoryIsSelected(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	now := time.Now().Truncate(time.Second)
	said, took := "words\n", int64(1000)
	slot := 0
	ran := func(id string, began, ended time.Time, outcome journal.Outcome) journal.Record {
		return journal.Record{RunID: id, Job: "j", Slot: &slot, Attempt: 1, Token: 1, Replica: "a", Trigger: "schedule", Tick: began, Started: began, Finished: ended,
			DurationMS: &took, Outcome: outcome, Output: &said}
	}
	tried := ran("short.1", now.Add(-3*time.Hour), now.Add(-3*time.Hour), "failed")
	tried.Retried = true
	c.record(t,
		ran("long", now.Add(-4*time.Hour), now, "ok"),
		tried,
		ran("short", now.Add(-3*time.Hour+time.Second), now.Add(-2*time.Hour), "failed"),
		journal.Record{RunID: "none", Job: "j", Tick: now.Add(-time.Hour), Finished: now.Add(-time.Hour), Replica: "a", Outcome: "missed", Reason: "redis"},
	)
	for name, tc := range map[string]struct {
		request HistoryRequest
		want    []string
	}{
		"all, by when they began": {HistoryRequest{}, []string{"none", "short", "short.1", "long"}},
		"failures":                {HistoryRequest{Outcomes: run.Failures()}, []string{"none", "short"}},
		"an outcome":              {HistoryRequest{Outcomes: []journal.Outcome{"ok"}}, []string{"long"}},
		"since":                   {HistoryRequest{Since: now.Add(-2 * time.Hour)}, []string{"none", "short", "long"}},
		"until":                   {HistoryRequest{Until: now.Add(-2 * time.Hour)}, []string{"short.1"}},
		"the newest that is left": {HistoryRequest{Outcomes: run.Failures(), Limit: 1}, []string{"none"}},
		"the newest by their end": {HistoryRequest{Limit: 2}, []string{"none", "long"}},
		"as many as there are":    {HistoryRequest{Limit: 4}, []string{"none", "short", "short.1", "long"}},
		"nothing":                 {HistoryRequest{Outcomes: []journal.Outcome{"lost"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tc.request.Output = true
			h, err := o.History(t.Context(), tc.request)
			if err != nil || h.Damage != nil {
				t.Fatal(err, h.Damage)
			}
			if cut := tc.request.Limit == 1 || tc.request.Limit == 2; h.More != cut {
				t.Errorf("more: %v", h.More)
			}
			var ids []string
			for _, r := range h.Records {
				ids = append(ids, r.RunID)
				if ran := !r.Started.IsZero(); ran != (r.Output != nil && *r.Output == said) {
					t.Errorf("%s printed %v", r.RunID, r.Output)
				}
			}
			if !slices.Equal(ids, tc.want) {
				t.Errorf("%v, want %v", ids, tc.want)
			}
		})
	}
}

// TestLogsReadTheOutputThatTheyShow has a long history, of which the output of one run is wanted.
func TestLogsReadTheOutputThatTheyShow(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	c.describe(t, journal.JobInfo{Name: "j", Enabled: true})
	now := time.Now()
	for n := range 5 {
		r := ended("j", fmt.Sprintf("run%d", n))
		r.Finished = now.Add(time.Duration(n) * time.Second)
		c.record(t, r)
	}
	c.record(t, journal.Record{RunID: "none", Job: "j", Tick: now, Finished: now.Add(time.Hour), Replica: "a", Outcome: "missed", Reason: "redis"})
	read := c.count(t, func(args []any) bool { return args[0] == "zrangebylex" })
	for limit, want := range map[int][]string{1: {"run4"}, 2: {"run4", "run3"}, 100: {"run4", "run3", "run2", "run1", "run0"}, 0: nil} {
		read.n.Store(0)
		logs, err := o.Logs(t.Context(), LogsRequest{Job: "j", Limit: limit})
		if err != nil || logs == nil {
			t.Fatal(logs, err)
		}
		var ids []string
		for _, r := range logs {
			if ids = append(ids, r.RunID); r.Output == nil || *r.Output != "hello\n" {
				t.Errorf("%s printed %v", r.RunID, r.Output)
			}
		}
		if !slices.Equal(ids, want) || int(read.n.Load()) != len(want) {
			t.Errorf("%d: %v, and the output of %d, want %v", limit, ids, read.n.Load(), want)
		}
	}
}
