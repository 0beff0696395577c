package run

import (
	"errors"
	"testing"
)

// A run whose end has more than one reason has the right outcome. A run that fails once its lease has lapsed is lost, whatever its error says: the
// process stood still meanwhile, and the run was killed, or kept from being started, by its warden.
// Promise: P6
func TestConclude(t *testing.T) {
	missing := Result{Err: errors.New("command can't be executed")}
	for _, tc := range []struct {
		name    string
		result  Result
		cause   error
		lapsed  bool
		outcome string
	}{
		{"ok", Result{}, nil, false, "ok"},
		{"ok, and seen late", Result{}, nil, true, "ok"},
		{"failed", missing, nil, false, "failed command can't be executed"},
		{"failed, and the lease is over", missing, nil, true, "lost"},
		{"stopped in time", missing, ErrLost, false, "lost"},
		{"stopped in time, and obeyed", Result{}, ErrLost, true, "lost"},
		{"stopped for another reason before", missing, ErrTimeout, true, "timeout"},
		{"drained before", missing, ErrDrain, true, "canceled drain"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r Record
			r.setOutcome(tc.result.Err, tc.cause, tc.lapsed)
			got := string(r.Outcome)
			if r.Reason != "" {
				got += " " + string(r.Reason)
			}
			if got != tc.outcome {
				t.Errorf("told as %q, want %q", got, tc.outcome)
			}
		})
	}
}
