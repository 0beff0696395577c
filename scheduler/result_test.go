package scheduler_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/scheduler"
)

// results is a Runner that returns a result once it is stopped.
type results scheduler.Result

// Run waits for the stop.
func (r results) Run(ctx context.Context, _ *scheduler.Run) scheduler.Result {
	<-ctx.Done()
	time.Sleep(time.Minute)
	return scheduler.Result(r)
}

// A run whose work had ended before it was stopped has the outcome of that end, and says what it left behind. One that was killed while this process stood still has ended
// then, and not when this process went on.
// Promise: P6
func TestResultsOfWorkThatEndedBefore(t *testing.T) {
	for _, tc := range []struct {
		name            string
		result          scheduler.Result
		outcome, detail string
		finished        time.Duration // after the start
	}{
		{"stopped", scheduler.Result{}, "timeout", "", 3 * time.Minute},
		{"had ended", scheduler.Result{LeftBehind: "a process"}, "ok", "a process", 3 * time.Minute},
		{"was killed before", scheduler.Result{Err: scheduler.ErrLost, EndedAgo: 30 * time.Second}, "timeout", "", 150 * time.Second},
		{"was killed before it began", scheduler.Result{Err: scheduler.ErrLost, EndedAgo: time.Hour}, "timeout", "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job := scheduler.Job{Name: "j", Schedule: []string{"@yearly"}, Timeout: 2 * time.Minute, KillGrace: time.Hour, Runner: results(tc.result)}
				s, err := scheduler.New(scheduler.Config{Replica: "r", Jobs: []scheduler.Job{job}})
				if err != nil {
					t.Fatal(err)
				}
				record, err := s.RunNow(t.Context(), "j", false)
				if err != nil || string(record.Outcome) != tc.outcome || record.Detail != tc.detail {
					t.Errorf("%v: %s, detail %q, want %s, %q", err, record.Outcome, record.Detail, tc.outcome, tc.detail)
				}
				if took := record.Finished.Sub(record.Started); took != tc.finished {
					t.Errorf("finished %v after its start, want %v", took, tc.finished)
				}
			})
		})
	}
}
