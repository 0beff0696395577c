package model

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var full = flag.Bool("full", false, "explore the whole model: minutes, and up to 4 GB of memory")

// searches are the bounds of the whole model: two replicas and two ticks, with the faults of a kind together.
var searches = []struct {
	name   string
	change func(*Setup)
}{
	{"silence", func(s *Setup) { s.Faults = Faults{Silences: 2, Strays: 1} }},
	{"silence, abandoning", func(s *Setup) {
		s.Abandons, s.StartWithin, s.Faults = true, 3, Faults{Silences: 1, Strays: 1, Freezes: 1}
	}},
	{"death, abandoning", func(s *Setup) { s.Abandons, s.Faults = true, Faults{Silences: 1, Deaths: 1} }},
	{"silence, giving up", func(s *Setup) { s.Faults = Faults{Silences: 1, Strays: 1, GiveUps: 1} }},
	{"clock", func(s *Setup) { s.Faults = Faults{Silences: 1, StepsBack: 1, StepBack: 2} }},
	{"freeze, death", func(s *Setup) { s.Faults = Faults{Freezes: 1, Deaths: 1} }},
	{"suspend", func(s *Setup) { s.Faults = Faults{Silences: 1, Suspends: 1} }},
	{"flush", func(s *Setup) { s.Faults = Faults{Flushes: 1} }},
	{"flush, silence", func(s *Setup) { s.Faults = Faults{Flushes: 1, Silences: 1, Strays: 1} }},
	{"lossy failover", func(s *Setup) { s.Faults = Faults{Saves: 1, Failovers: 1} }},
	{"two masters", func(s *Setup) { s.Acked, s.Faults = true, Faults{Splits: 1} }},
	{"behind an open tick", func(s *Setup) { s.Manual, s.Queue, s.Faults = true, true, Faults{Saves: 1, Failovers: 1} }},
	{"recovery, drain", func(s *Setup) { s.Leaves, s.Recover, s.Faults = true, 2, Faults{Silences: 1, Strays: 1, GiveUps: 1} }},
	{"recovery, death", func(s *Setup) { s.Leaves, s.Recover, s.Faults = true, 1, Faults{Freezes: 1, Deaths: 1} }},
	{"recovery, clock", func(s *Setup) { s.Leaves, s.Recover, s.Faults = true, 1, Faults{Deaths: 1, StepsBack: 1, StepBack: 2} }},
	{"recovery, flush", func(s *Setup) { s.Leaves, s.Recover, s.Faults = true, 1, Faults{Flushes: 1} }},
	{"recovery, failover", func(s *Setup) { s.Leaves, s.Recover, s.Faults = true, 1, Faults{Saves: 1, Failovers: 1} }},
	{"recovery, two masters", func(s *Setup) { s.Leaves, s.Recover, s.Acked, s.Faults = true, 1, true, Faults{Splits: 1} }},
	{"pause", func(s *Setup) { s.Faults = Faults{Pauses: 2, Resumes: 1, Silences: 1, Strays: 1} }},
	{"pause, clock", func(s *Setup) { s.PauseFor, s.Faults = 1, Faults{Pauses: 1, Resumes: 1, StepsBack: 1, StepBack: 2} }},
	{"pause, failover", func(s *Setup) { s.Faults = Faults{Pauses: 1, Resumes: 1, Flushes: 1, Saves: 1, Failovers: 1} }},
	{"all", func(s *Setup) {
		s.Faults = Faults{Silences: 1, Strays: 1, GiveUps: 1, StepsBack: 1, StepBack: 2, Freezes: 1, Suspends: 1, Deaths: 1, Flushes: 1, Saves: 1, Failovers: 1}
	}},
}

// TestFullModel explores each of the searches with one slot and with two.
func TestFullModel(t *testing.T) {
	horizon, limit := uint8(2), 2_000
	if *full {
		horizon, limit = 4, 2_000_000
	}
	for _, slots := range []int{1, 2} {
		t.Run(fmt.Sprintf("K=%d", slots), func(t *testing.T) {
			t.Parallel()
			for _, s := range searches {
				setup := Setup{Replicas: 2, Ticks: 2, Slots: slots, PerTick: 1, At: [works]uint8{0, 1, 2}, Lease: 2, Timeout: 1, Tombstone: 2,
					StartWithin: 2, Horizon: horizon, InFlight: 2}
				s.change(&setup)
				began := time.Now()
				got := Explore(setup, Proposed(), limit)
				verdict := "no violation"
				if got.Broken != 0 {
					verdict = got.Broken.String()
					t.Errorf("K=%d, %s: %s\n%s", slots, s.name, verdict, strings.Join(got.Schedule, "\n"))
				}
				t.Logf("K=%d %-21s %9d states %3d deep, complete: %-5t %7d cut, %s in %v", slots, s.name, got.States, got.Depth, got.Complete, got.Cut, verdict, time.Since(began).Round(time.Second/10))
			}
		})
	}
}
