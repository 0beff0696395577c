package chains

import (
	"strings"
	"testing"
)

// regression is a schedule that must be found while a rule is off, and not with it on.
type regression struct {
	name  string
	off   func(*Rules)
	setup Setup
	fault uint8
}

// cases are the schedules that the rules answer.
var cases = []regression{
	{"an outcome that is written after the release", func(r *Rules) { r.Atomic = false }, Setup{Parents: 1, Ticks: 1, Deaths: 1}, forgotten},
	{"a younger tick is due first", func(r *Rules) { r.DueInOrder = false }, Setup{Parents: 1, Ticks: 2}, lost},
	{"a tick that awaits a recovery counts as ended", func(r *Rules) { r.OrphansHoldUp = false },
		Setup{Parents: 1, Ticks: 1, Deaths: 1, Recover: true}, forgotten},
	{"a tick that was given back counts as ended", func(r *Rules) { r.ReopenedHoldUp = false }, Setup{Parents: 1, Ticks: 1, GiveBacks: 1}, forgotten},
	{"a recovery does not make good", func(r *Rules) { r.LastRunDecides = false }, Setup{Parents: 1, Ticks: 1, Deaths: 1, Recover: true}, forgotten},
	{"an outcome that is reported once", func(r *Rules) { r.KeptUntilUsed = false }, Setup{Parents: 1, Ticks: 1}, forgotten},
	{"an undecided tick is used", func(r *Rules) { r.UndecidedKept = false }, Setup{Parents: 1, Ticks: 1}, forgotten},
	{"a tick is used that is given back before its start", func(r *Rules) { r.PendingKept = false }, Setup{Parents: 1, Ticks: 1, Lost: 1, Drains: 1}, forgotten},
	{"an orphan of the child is used, and given back", func(r *Rules) { r.PendingKept = false },
		Setup{Parents: 1, Ticks: 1, Lost: 1, Expiries: 1, Drains: 1}, forgotten},
	{"a claim does not name the tick before it", func(r *Rules) { r.PreviousNamed = false }, Setup{Parents: 1, Ticks: 2}, lost},
	{"a tick that one of two parents has ended", func(r *Rules) { r.AllParents = false }, Setup{Parents: 2, Ticks: 1}, uncalled},
}

func TestEachRuleIsNeeded(t *testing.T) {
	t.Parallel()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.setup.Rules = AllRules()
			nothing(t, c.setup)
			c.off(&c.setup.Rules)
			schedule, states := Explore(c.setup)
			if schedule == nil || schedule[len(schedule)-1] != "broken: "+promises[c.fault] {
				t.Fatalf("without the rule, among %d states, want %q:\n%s", states, promises[c.fault], strings.Join(schedule, "\n"))
			}
			t.Logf("without the rule, among %d states:\n%s", states, strings.Join(schedule, "\n"))
		})
	}
}

func nothing(t *testing.T, s Setup) {
	t.Helper()
	schedule, states := Explore(s)
	if schedule != nil {
		t.Errorf("among %d states:\n%s", states, strings.Join(schedule, "\n"))
	}
	t.Logf("%d states", states)
}

// TestWide has all that may happen together, as far as it is searched in a second.
func TestWide(t *testing.T) {
	t.Parallel()
	for _, s := range []Setup{
		{Parents: 1, Ticks: 2, Deaths: 1, Failures: 1, Recover: true},
		{Parents: 2, Ticks: 1, Lost: 1, Expiries: 1, Drains: 1, GiveBacks: 1, Deaths: 1, Recover: true},
		{Parents: 2, Ticks: 1, Deaths: 1, Failures: 1, Drains: 1, Lost: 1},
	} {
		s.Rules = AllRules()
		nothing(t, s)
	}
}
