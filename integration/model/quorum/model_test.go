package quorum

import (
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/testtier"
)

// cases are the schedules that the rules answer, one each, in bounds in which nothing is found with all rules on.
var cases = []struct {
	name    string
	off     func(*Rules)
	setup   Setup
	promise string // which is broken
}{
	{"counting holders node by node", func(r *Rules) { r.SameRow = false }, Setup{Claimants: 3, Slots: 2}, "a row has one holder, and no more than the limit hold one"},
	{"a node that takes smaller tokens", func(r *Rules) { r.FloorPromises = false }, Setup{Claimants: 2, Slots: 1}, "tokens grow"},
	{"a ledger written in the first phase", func(r *Rules) { r.LedgerLast = false }, Setup{Claimants: 3, Slots: 1, Ticks: true},
		"a split vote burns no tick"},
	{"a minority's value that is not completed", func(r *Rules) { r.NewestValue = false }, Setup{Claimants: 2, Slots: 1, Ticks: true},
		"the tick is granted once"},
	{"a write-back that asks for nothing", func(r *Rules) { r.Conditional = false }, Setup{Claimants: 2, Slots: 2, Ticks: true}, ""},
	{"a ledger on one node", func(r *Rules) { r.AcceptMajority = false }, Setup{Claimants: 2, Slots: 1, Ticks: true, Settles: true}, "the tick is granted once"},
	{"a message that arrives after the claimant gave up", func(r *Rules) { r.DropStragglers = false }, Setup{Claimants: 2, Slots: 1, GivesUp: true},
		"a claimant that gives up leaves no row"},
	{"a renewal on one node", func(r *Rules) { r.RenewMajority = false }, Setup{Claimants: 2, Slots: 1, Renews: true, Losses: 1, Horizon: 2},
		"a row has one holder, and no more than the limit hold one"},
	{"A holds {1,2}; 2 restarts empty; B gets {2,3}", func(r *Rules) { r.ForgottenIsSilent = false }, Setup{Claimants: 2, Slots: 1, Forgets: 1, Horizon: 1}, ""},
	{"a node that votes without the ledger", func(r *Rules) { r.Reseeded = false }, Setup{Claimants: 2, Slots: 1, Ticks: true, Forgets: 1, Horizon: 2},
		"the tick is granted once"},
	{"a majority that was never asked begins", func(r *Rules) { r.QuietBeginning = false },
		Setup{Claimants: 2, Slots: 1, Renews: true, Forgets: 1, Newcomer: true, Horizon: 3}, "a row has one holder, and no more than the limit hold one"},
	{"a renewal on a node that has forgotten its vote", func(r *Rules) { r.RenewalVotes = false },
		Setup{Claimants: 2, Slots: 1, Renews: true, Forgets: 1, Horizon: 3}, "a row has one holder, and no more than the limit hold one"},
	{"the dead that renew", func(r *Rules) { r.ShutBeforeDeath = false },
		Setup{Claimants: 2, Slots: 1, Renews: true, LooksForDead: true, Losses: 1, Horizon: 3}, "the living are not declared dead"},
}

// TestEachRuleAnswersASchedule finds no schedule that breaks a promise of the quorum, and one for each rule that is off.
// Promise: quorum
func TestEachRuleAnswersASchedule(t *testing.T) {
	testtier.Slow(t)
	if testtier.RaceEnabled {
		t.Skip("nothing in it is concurrent: make test-long runs it without the race detector")
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.setup.Rules = AllRules()
			if schedule, states := Explore(c.setup); schedule != nil {
				t.Fatalf("with all rules on, among %d states:\n%s", states, strings.Join(schedule, "\n"))
			} else {
				t.Logf("with all rules on: none among %d states", states)
			}
			c.off(&c.setup.Rules)
			schedule, states := Explore(c.setup)
			if schedule == nil {
				t.Fatalf("without the rule, among %d states: none", states)
			}
			t.Logf("without the rule, among %d states:\n%s", states, strings.Join(schedule, "\n"))
			if last := schedule[len(schedule)-1]; c.promise != "" && last != "broken: "+c.promise {
				t.Errorf("%s, want %q", last, c.promise)
			}
		})
	}
}
