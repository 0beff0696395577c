package replica

import (
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// Keys with the time to live of a registration prove a loss only while they cannot have expired. The epoch does so at any time.
func TestLossOfKeysThatMayHaveExpired(t *testing.T) {
	t.Parallel()
	const soon, late = operator.RegisterEvery, registerTTL - redisconn.Timeout
	at := time.Now()
	for name, tc := range map[string]struct {
		after  time.Duration // since the last registration
		known  bool
		epoch  string // "e" was found before
		canary journal.CanaryState
		want   loss
	}{
		"all is there":                     {soon, true, "e", journal.CanaryIntact, lossNone},
		"all is there, late":               {late, true, "e", journal.CanaryIntact, lossNone},
		"the registration is gone":         {soon, false, "e", journal.CanaryIntact, lossOfData},
		"the registration may have gone":   {late, false, "e", journal.CanaryIntact, lossOfEntry},
		"a canary is gone":                 {soon, true, "e", journal.CanaryMissing, lossOfData},
		"a canary may have gone":           {late, true, "e", journal.CanaryMissing, lossOfEntry},
		"both may have gone":               {late, false, "e", journal.CanaryMissing, lossOfEntry},
		"a canary is in doubt":             {soon, true, "e", journal.CanaryUnsure, lossUnsure},
		"a canary is in doubt, late":       {late, true, "e", journal.CanaryUnsure, lossUnsure},
		"the epoch is not known":           {soon, true, "", journal.CanaryIntact, lossUnsure},
		"no epoch and no registration":     {soon, false, "", journal.CanaryIntact, lossOfData},
		"another epoch":                    {soon, true, "f", journal.CanaryIntact, lossOfData},
		"another epoch, and all has gone":  {late, false, "f", journal.CanaryMissing, lossOfData},
		"another epoch, canaries in doubt": {late, true, "f", journal.CanaryUnsure, lossOfData},
	} {
		w := lossWatch{}
		w.look(sighting{journal.Registration{Epoch: "e"}, journal.CanaryIntact, noSuccessor}, at, at)
		now := at.Add(tc.after)
		found := journal.Registration{Known: tc.known, Epoch: tc.epoch}
		if found.Epoch == "" {
			found.EpochError = errNoAnswer
		}
		got, since := w.look(sighting{found, tc.canary, noSuccessor}, now, now)
		if got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if want := (journal.Interval{From: at, To: now}); (got == lossOfData || got == lossOfEntry) && since != want {
			t.Errorf("%s: since %v, want %v", name, since, want)
		}
	}
}
