package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
)

// A job before others goes on, has ended ok, or keeps them from having a tick, by its last runs: open while one of them may still be recovered.
func TestStatesOfParents(t *testing.T) {
	t.Parallel()
	run, past := ranAtNoon, func(records ...journal.Record) []journal.Record { return records }
	for what, tc := range map[string]struct {
		state election.State
		past  []journal.Record
		want  parentState
	}{
		"good":                             {past: past(run(0, 1, "schedule", "ok")), want: parentOK},
		"failed":                           {past: past(run(0, 1, "schedule", "failed")), want: parentBad},
		"good at the second try":           {past: past(run(0, 2, "schedule", "ok"), run(0, 1, "schedule", "failed")), want: parentOK},
		"failed in one slot of two":        {past: past(run(0, 1, "schedule", "ok"), run(1, 1, "schedule", "failed")), want: parentBad},
		"abandoned":                        {past: past(run(0, 1, "schedule", "abandoned")), want: parentBad},
		"abandoned, with its recovery":     {state: election.State{Orphans: []election.Run{{ID: "01", Tick: noon}}}, past: past(run(0, 1, "schedule", "abandoned")), want: parentPending},
		"recovered, and running":           {state: election.State{Running: []election.Run{{ID: "02", Tick: noon}}}, past: past(run(0, 1, "schedule", "abandoned"), run(0, 2, "recovery", "running")), want: parentPending},
		"recovered in another slot":        {past: past(run(0, 2, "recovery", "ok"), run(1, 1, "schedule", "abandoned")), want: parentOK},
		"recovered twice":                  {past: past(run(2, 1, "schedule", "lost"), run(1, 2, "recovery", "canceled"), run(0, 3, "recovery", "ok")), want: parentOK},
		"a retry beside a lost run":        {past: past(run(0, 1, "schedule", "lost"), run(1, 2, "schedule", "ok")), want: parentBad},
		"good, then run again, and failed": {past: past(run(0, 1, "schedule", "ok"), run(0, 1, "manual", "failed")), want: parentOK},
		"good, and runs again":             {state: election.State{Running: []election.Run{{ID: "manualrunning"}}}, past: past(run(0, 1, "schedule", "ok"), run(0, 1, "manual", "running")), want: parentOK},
		"failed, then run again, and good": {past: past(run(0, 1, "schedule", "failed"), run(1, 2, "manual", "ok")), want: parentBad},
		"failed, and runs again":           {state: election.State{Running: []election.Run{{ID: "manualrunning"}}}, past: past(run(0, 1, "schedule", "failed"), run(0, 1, "manual", "running")), want: parentBad},
		"run by a user alone":              {past: past(run(0, 1, "manual", "ok")), want: parentUnknown},
		"died, and is not recorded":        {past: past(run(0, 1, "schedule", "running")), want: parentUnknown},
		"without a record":                 {state: election.State{Decided: noon.Add(time.Hour)}, want: parentUnknown},
		"due":                              {state: election.State{Decided: noon.Add(-time.Hour)}, want: parentPending},
		"missed, and is not recorded":      {state: election.State{Settled: []election.Settlement{{Tick: noon, Outcome: "missed redis"}}}, want: parentBad},
	} {
		if got := explained(t, tc.state, tc.past...).parentState(); got != tc.want {
			t.Errorf("%s: %v, want %v", what, got, tc.want)
		}
	}
}

// A tick of a chain is not due while a job before it is not known: that may have failed. One that failed is enough to have no tick.
func TestWhyOfAChainThatIsNotKnown(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	after := func(name string, parents ...string) journal.JobInfo {
		return journal.JobInfo{Name: name, Enabled: true, After: parents}
	}
	var many []string
	for n := range mostParents {
		many = append(many, fmt.Sprintf("a%d", n))
	}
	c.describe(t, journal.JobInfo{Name: "daily", Enabled: true}, after("known", "daily"), after("removed", "daily", "gone"),
		after("over", "removed", "daily"), after("capped", append(many, "daily")...))
	for _, name := range many {
		c.describe(t, journal.JobInfo{Name: name, Enabled: true})
	}
	tomorrow := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
	for job, want := range map[string]Fate{"known": Due, "removed": Unknown, "over": Unknown, "capped": Unknown} {
		s, err := o.Why(t.Context(), job, tomorrow.Format(time.RFC3339))
		if err != nil {
			t.Fatal(err)
		}
		if s.Fate != want || want == Unknown && strings.Contains(s.Lines[0], "it waits until") {
			t.Errorf("%s: %s, want %s: %q", job, s.Fate, want, s.Lines)
		}
	}
	if s, err := o.Why(t.Context(), "removed", tomorrow.Add(time.Hour).Format(time.RFC3339)); err != nil || s.Fate != NoTick {
		t.Errorf("%+v, %v", s, err)
	}
}
