package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/testtier"
)

// small is the setup that the cases change: two replicas and one slot.
func small(change func(*Setup)) Setup {
	s := Setup{Replicas: 2, Ticks: 1, Slots: 1, PerTick: 1, At: [works]uint8{0, 1, 2}, Lease: 2, Timeout: 1, Tombstone: 2, StartWithin: 1,
		Horizon: 3, InFlight: 2}
	change(&s)
	return s
}

// bounds must hold all states of a small search.
const bounds = 2_000_000

// regression is a schedule that the search must find while a rule is off, and must not find with all rules on.
type regression struct {
	name  string
	off   func(*Rules)
	setup func(*Setup)
	fault Fault
}

// cases are the schedules that broke drafts of the protocol, and the rules that answer them.
var cases = slices.Concat(granting, carryingOn, pausing)

var granting = []regression{
	{"a plain newest tick loses a backlog", func(r *Rules) { r.LowWithoutGaps = false },
		func(s *Setup) { s.Ticks = 2 }, brokenLost},
	{"a timed-out claim arrives late", func(r *Rules) { r.NotAfter = false },
		func(s *Setup) {
			s.Replicas, s.Horizon, s.StartWithin, s.Lease, s.Faults = 1, 4, 3, 4, Faults{Silences: 1, Strays: 1, GiveUps: 1}
		}, brokenLost},
	{"a withdrawn claim arrives late", func(r *Rules) { r.Tombstones = false },
		func(s *Setup) { s.Replicas, s.Faults = 1, Faults{Silences: 1, Strays: 1, GiveUps: 1} }, brokenLost},
	{"a claim that was given up is not withdrawn", func(r *Rules) { r.WithdrawGivenUp = false },
		func(s *Setup) { s.Faults = Faults{Silences: 1, Strays: 1, GiveUps: 1} }, brokenLost},
	{"a claim is withdrawn while it is asked for", func(r *Rules) { r.WithdrawUnasked = false },
		func(s *Setup) { s.Faults = Faults{Silences: 1, Strays: 1, GiveUps: 1} }, brokenOnce},
	{"a claim is tried again under a new id", func(r *Rules) { r.SameID = false },
		func(s *Setup) { s.Faults = Faults{Silences: 1, Strays: 1} }, brokenLost},
	{"a claim that is asked again is told of its own grant", func(r *Rules) { r.SameGrantAgain, r.WithdrawDecided = false, false },
		func(s *Setup) { s.Faults = Faults{Silences: 1, Strays: 1} }, brokenLost},
	{"an outcome is decided outside of the script", func(r *Rules) { r.SettledInScript = false },
		func(*Setup) {}, brokenDecider},
	{"a tick that ran in one of two slots is skipped", func(r *Rules) { r.SkipOnlyUnrun = false },
		func(s *Setup) { s.Slots, s.PerTick, s.Manual, s.Horizon, s.InFlight = 2, 2, true, 1, 2 }, brokenDecider},
	{"a waiting tick is skipped", func(r *Rules) { r.WaitingNeverSkips = false },
		func(s *Setup) { s.Ticks, s.Horizon, s.Faults = 2, 2, Faults{Silences: 1, Strays: 1} }, brokenSkipped},
	{"the first tick of a queue is skipped as those behind it", func(r *Rules) { r.FirstWaits = false },
		func(s *Setup) { s.Ticks, s.Horizon, s.Queue, s.StartWithin = 2, 2, true, 2 }, brokenQueue},
	{"a run is given back after its start", func(r *Rules) { r.GiveBackOnlyUnrun = false },
		func(*Setup) {}, brokenOnce},
	{"a lock alone, without a ledger", func(r *Rules) { r.LedgerOfTicks = false },
		func(s *Setup) { s.StartWithin, s.Queue = 3, true }, brokenOnce},
	{"the claimant's clock is believed", func(r *Rules) { r.NeverEarly = false },
		func(s *Setup) { s.Early = 1 }, brokenEarly},
	{"a counter for tokens starts again", func(r *Rules) { r.HybridTokens = false },
		func(s *Setup) { s.Ticks, s.Manual, s.Faults = 0, true, Faults{Flushes: 1} }, brokenFenced},

	{"the deadline counts from the reply", func(r *Rules) { r.DeadlineFromSend = false },
		func(s *Setup) { s.Ticks, s.At[2] = 2, 3 }, brokenExclusive},
	{"a clock that stands still in suspend", func(r *Rules) { r.DeadlineInSuspend = false },
		func(s *Setup) { s.Ticks, s.At[2], s.Faults = 2, 3, Faults{Suspends: 1} }, brokenExclusive},
	{"a frozen replica's processes run on", func(r *Rules) { r.Warden = false },
		func(s *Setup) { s.Ticks, s.At[2], s.Faults = 2, 3, Faults{Freezes: 1} }, brokenExclusive},
	{"a killed replica's processes run on", func(r *Rules) { r.Warden = false },
		func(s *Setup) { s.Ticks, s.At[2], s.Faults = 2, 3, Faults{Deaths: 1} }, brokenExclusive},
	{"released before the processes are dead", func(r *Rules) { r.ReleaseAfterDead = false },
		func(s *Setup) { s.Ticks = 2 }, brokenExclusive},
	{"a slow renewal after the release", func(r *Rules) { r.Tombstones, r.SlotRemembers = false, false },
		func(*Setup) {}, brokenGhost},
	{"a slow renewal after the end of the lease", func(r *Rules) { r.PutBackNeverOver = false },
		func(s *Setup) { s.Ticks, s.At[2] = 2, 3 }, brokenRow},
	{"a renewal on the old master", func(r *Rules) { r.AcknowledgedRenewals = false },
		func(s *Setup) {
			s.Ticks, s.Manual, s.Horizon, s.InFlight, s.Acked, s.Faults = 0, true, 2, 2, true, Faults{Splits: 1}
		}, brokenExclusive},
	{"a grant on the old master", func(r *Rules) { r.AcknowledgedGrants = false },
		func(s *Setup) { s.Acked, s.Faults = true, Faults{Splits: 1} }, brokenOnce},

	{"no client restores what a server has forgotten", func(r *Rules) { r.ObservedState = false },
		func(s *Setup) { s.Ticks, s.Manual, s.Faults = 0, true, Faults{Flushes: 1} }, brokenExclusive},
	{"a server that has forgotten grants at once", func(r *Rules) { r.ForgottenCloses = false },
		func(s *Setup) { s.Ticks, s.Manual, s.Faults = 0, true, Faults{Flushes: 1} }, brokenExclusive},
	{"one holder's renewal makes the server look unforgetful", func(r *Rules) { r.PutBackCloses = false },
		func(s *Setup) {
			s.Replicas, s.Slots, s.Ticks, s.Manual, s.Horizon, s.InFlight, s.Faults = 3, 2, 0, true, 1, 2, Faults{Flushes: 1}
		}, brokenExclusive},
	{"a put-back is compared with the floor", func(r *Rules) { r.PutBackBySlot = false },
		func(s *Setup) { s.Slots, s.Ticks, s.Manual, s.Horizon, s.Faults = 2, 0, true, 2, Faults{Flushes: 1} }, brokenHolder},
	{"replies carry low and not the ledger", func(r *Rules) { r.RepliesCarryLedger = false },
		func(s *Setup) {
			s.Ticks, s.At[2], s.Queue, s.StartWithin, s.InFlight, s.Faults = 2, 1, true, 2, 1, Faults{Failovers: 1}
		}, brokenOnce},

	{"a grant without a heard reply ends before it is asked for again", func(r *Rules) { r.OwnOrphanIsUnheard, r.WithdrawDecided = false, false },
		func(s *Setup) { s.Horizon, s.StartWithin, s.Faults = 4, 4, Faults{Silences: 1} }, brokenLost},
	{"a tick is open again without its claimant's withdrawal", func(r *Rules) { r.OnlyClaimantReopens = false },
		func(s *Setup) { s.Horizon, s.StartWithin, s.Faults = 4, 4, Faults{Silences: 1} }, brokenOnce},
	{"a tick is claimed again under the id that was withdrawn", func(r *Rules) { r.WithdrawnIDIsDead = false },
		func(s *Setup) { s.Horizon, s.StartWithin, s.Faults = 5, 5, Faults{Silences: 2, Strays: 1} }, brokenGhost},
	{"a claim without an answer arrives when the tick is open again", func(r *Rules) { r.WithdrawDecided = false },
		func(s *Setup) { s.Horizon, s.StartWithin, s.Faults = 3, 4, Faults{Silences: 2, Strays: 1} }, brokenLost},
	{"others record a run as abandoned at once", func(r *Rules) { r.AbandonLate = false },
		func(s *Setup) { s.Horizon, s.StartWithin, s.Abandons, s.Faults = 5, 5, true, Faults{Silences: 1} }, brokenLost},
	{"a withdrawal on the old master", func(r *Rules) { r.AcknowledgedWithdrawal = false },
		func(s *Setup) {
			s.Replicas, s.Horizon, s.StartWithin, s.Acked, s.Faults = 1, 4, 4, true, Faults{Silences: 1, Splits: 1}
		}, brokenLost},
	{"a claim that was answered hides one that was not", func(r *Rules) { r.WithdrawDoubted = false },
		func(s *Setup) {
			s.Replicas, s.Manual, s.StartWithin, s.Faults = 1, true, 2, Faults{Silences: 1, Strays: 1, GiveUps: 1}
		}, brokenLost},
	{"a vain grant of an old master is restored on the new one", func(r *Rules) { r.AcknowledgedState = false },
		func(s *Setup) { s.Acked, s.StartWithin, s.Faults = true, 2, Faults{Splits: 1} }, brokenLost},
	{"a tick is skipped on the old master, and granted on the new one", func(r *Rules) { r.AcknowledgedRefusal = false },
		func(s *Setup) {
			s.Acked, s.Manual, s.Horizon, s.InFlight, s.Faults = true, true, 1, 1, Faults{Splits: 1}
		}, brokenDecider},
}

func TestIDs(t *testing.T) {
	t.Parallel()
	seen := map[ID]bool{0: true}
	for r := range maxReplicas {
		for w := range works {
			for g := range generations {
				if w == 0 && g > 0 {
					continue
				}
				id := newID(r, w, g)
				if seen[id] || id.owner() != r || id.work() != w || id.generation() != g || !idsFor[w].has(id) {
					t.Errorf("id %d of replica %d, work %d, generation %d: %d, %d, %d", id, r, w, g, id.owner(), id.work(), id.generation())
				}
				seen[id] = true
			}
		}
	}
}

func TestEachRuleIsNeeded(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			setup := small(tc.setup)
			without := AllRules()
			tc.off(&without)
			finds(t, setup, without, tc.fault)
			findsNothing(t, setup, AllRules())
		})
	}
}

// TestReductionHidesNothing finds the same broken promise, by a schedule as short, with and without the reduction of
// states.
func TestReductionHidesNothing(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, tc := range cases {
		setup, rules := small(tc.setup), AllRules()
		tc.off(&rules)
		reduced := Explore(setup, rules, bounds)
		s := newSearch(setup, rules, bounds)
		s.plain = true
		plain := s.run()
		if plain.Broken != tc.fault || len(plain.Schedule) != len(reduced.Schedule) {
			t.Errorf("%s: %q after %d steps, and with the reduction after %d\n%s", tc.name, plain.Broken, len(plain.Schedule), len(reduced.Schedule),
				strings.Join(plain.Schedule, "\n"))
		}
	}
}

// gaps are schedules that break a promise with all rules of the protocol on. Each is closed by a rule that is proposed.
var gaps = []regression{
	{"a server forgets a schedule before its first tick is decided", func(r *Rules) { r.ScheduleIsCarried = false },
		func(s *Setup) { s.StartWithin, s.Faults = 2, Faults{Flushes: 1} }, brokenLost},
	{"a server forgets a settlement behind an open tick", func(r *Rules) { r.OutOfTurnIsCarried = false },
		func(s *Setup) {
			s.Ticks, s.At[2], s.Horizon, s.InFlight, s.Faults = 2, 1, 1, 1, Faults{Pauses: 1, Resumes: 1, Failovers: 1}
		}, brokenDecider},
}

// TestGaps finds each known gap of the protocol. A gap that is closed in the program moves to the cases, with its rule.
func TestGaps(t *testing.T) {
	t.Parallel()
	for _, tc := range gaps {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			setup, rules := small(tc.setup), Proposed()
			tc.off(&rules)
			finds(t, setup, rules, tc.fault)
			if got := Explore(setup, AllRules(), bounds); got.Broken == 0 {
				t.Error("the rules of the protocol are enough: this is no gap")
			}
			findsNothing(t, setup, Proposed())
		})
	}
}

// TestLostRenewal shows that a failover may lose a renewal unless acked_replicas is set. A lost grant is restored by
// the clients that observed it; no number of the protocol shows a lost renewal.
func TestLostRenewal(t *testing.T) {
	t.Parallel()
	setup := small(func(s *Setup) {
		s.Replicas, s.Ticks, s.At[2], s.InFlight, s.Faults = 1, 2, 3, 1, Faults{Saves: 1, Failovers: 1, Renewals: true}
	})
	finds(t, setup, Proposed(), brokenExclusive)
	setup.Acked, setup.Faults.Saves = true, 0
	findsNothing(t, setup, Proposed())
}

func finds(t *testing.T, setup Setup, rules Rules, want Fault) {
	t.Helper()
	got := Explore(setup, rules, bounds)
	schedule := strings.Join(got.Schedule, "\n")
	if got.Broken != want {
		t.Errorf("found %q, want %q; %d states, complete: %t\n%s", got.Broken, want, got.States, got.Complete, schedule)
	}
	t.Logf("found among %d states: %s\n%s", got.States, got.Broken, schedule)
}

func findsNothing(t *testing.T, setup Setup, rules Rules) {
	t.Helper()
	got := Explore(setup, rules, bounds)
	if got.Broken != 0 || !got.Complete {
		t.Errorf("found %q; %d states, complete: %t\n%s", got.Broken, got.States, got.Complete, strings.Join(got.Schedule, "\n"))
	}
	t.Logf("nothing among %d states, %d steps deep, %d schedules cut", got.States, got.Depth, got.Cut)
}
