package replica

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// Keys with the time to live of a registration prove a loss only while they cannot have expired. The epoch does so at any time.
func TestLossOfKeysThatMayHaveExpired(t *testing.T) {
	t.Parallel()
	const soon, late = cluster.RegisterEvery, registerTTL - redisconn.Timeout
	at := time.Now()
	for name, tc := range map[string]struct {
		after  time.Duration // since the last registration
		known  bool
		epoch  string // "e" was found before
		canary journal.CanaryState
		evicts bool
		want   loss
	}{
		"all is there":                     {soon, true, "e", journal.CanaryIntact, false, lossNone},
		"all is there, late":               {late, true, "e", journal.CanaryIntact, false, lossNone},
		"the registration is gone":         {soon, false, "e", journal.CanaryIntact, false, lossOfData},
		"the registration may have gone":   {late, false, "e", journal.CanaryIntact, false, lossOfEntry},
		"a canary is gone":                 {soon, true, "e", journal.CanaryMissing, false, lossOfData},
		"a canary may have gone":           {late, true, "e", journal.CanaryMissing, false, lossOfEntry},
		"both may have gone":               {late, false, "e", journal.CanaryMissing, false, lossOfEntry},
		"a canary is in doubt":             {soon, true, "e", journal.CanaryUnsure, false, lossUnsure},
		"a canary is in doubt, late":       {late, true, "e", journal.CanaryUnsure, false, lossUnsure},
		"the epoch is not known":           {soon, true, "", journal.CanaryIntact, false, lossUnsure},
		"no epoch and no registration":     {soon, false, "", journal.CanaryIntact, false, lossOfData},
		"another epoch":                    {soon, true, "f", journal.CanaryIntact, false, lossOfData},
		"another epoch, and all has gone":  {late, false, "f", journal.CanaryMissing, false, lossOfData},
		"another epoch, canaries in doubt": {late, true, "f", journal.CanaryUnsure, false, lossOfData},
		"the registration was evicted":     {soon, false, "e", journal.CanaryIntact, true, lossToEviction},
		"a canary was evicted":             {soon, true, "e", journal.CanaryMissing, true, lossToEviction},
		"all is there, and may be evicted": {soon, true, "e", journal.CanaryIntact, true, lossNone},
		"no epoch; evicted, or lost":       {soon, false, "", journal.CanaryIntact, true, lossToEviction},
		"another epoch is never evicted":   {soon, false, "f", journal.CanaryMissing, true, lossOfData},
		"evicted, or expired":              {late, false, "e", journal.CanaryIntact, true, lossOfEntry},
	} {
		w := lossWatch{}
		w.detectLoss(sighting{Registration: journal.Registration{Epoch: "e"}, successor: noSuccessor}, at, at)
		now := at.Add(tc.after)
		found := journal.Registration{Known: tc.known, Epoch: tc.epoch}
		if found.Epoch == "" {
			found.EpochError = errNoAnswer
		}
		got, since := w.detectLoss(sighting{found, tc.canary, noSuccessor, func() bool { return tc.evicts }}, now, now)
		if got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if want := (journal.Interval{From: at, To: now}); (got > lossUnsure) && since != want {
			t.Errorf("%s: since %v, want %v", name, since, want)
		}
	}
}

// A Redis that evicts has not lost its data with a registration. The jobs are announced each time, and a loss that comes back at each renewal is warned of once
// a minute, whatever its kind.
func TestEvictedRegistrationIsNoLossOfData(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, rdb := fakeJournal(t)
		at := time.Now()
		m := startMember(t, j, "a-1", "a", &at)
		swept := 0
		m.announcer.sweep = func(context.Context, ...string) error { swept++; return nil }
		renewals := func(what string, gone func(context.Context, ...string) *redis.IntCmd, warnings int) {
			t.Helper()
			m.log.Reset()
			swept = 0
			for range 3 * int(time.Minute/cluster.RegisterEvery) {
				time.Sleep(cluster.RegisterEvery)
				at = time.Now()
				gone(t.Context(), "cronclave:default:replica:a-1", "cronclave:default:epoch")
				m.turn(t.Context())
			}
			if n := strings.Count(m.log.String(), "[WARN]"); n != warnings || swept != 36 {
				t.Errorf("%s: %d warnings, want %d; announced %d times; log %s", what, n, warnings, swept, m.log.String())
			}
		}
		m.evicting = true
		renewals("evicted", func(ctx context.Context, keys ...string) *redis.IntCmd { return rdb.Del(ctx, keys[0]) }, 3)
		m.wantLoss(t, "evicts keys")
		renewals("lost", rdb.Del, 3)
		m.wantLoss(t, "Redis lost its data")
	})
}
