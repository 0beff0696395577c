package quorum

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/background"
	"github.com/cronclave/cronclave/internal/lease/observed"
)

// The votes for an older tick were split, or nothing is known of it: the younger one may be settled, and takes no row.
// Promise: P5, quorum
func TestQuorumTickBehindAnOpenOneTakesNoRow(t *testing.T) {
	t.Parallel()
	var nodes []redis.UniversalClient
	for range 3 {
		nodes = append(nodes, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})) // no node is asked
	}
	clock := func() time.Duration { return time.Hour }
	work := background.New(clock)
	q := New(Config{Nodes: nodes, Timeout: time.Second, Idle: time.Minute, Clock: clock, Work: work, Observed: observed.New()})
	defer func() {
		work.End()
		work.Wait()
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		for _, n := range nodes {
			_ = n.Close()
		}
	}()
	claimFor := func(tick int64) *claim {
		at := time.Unix(tick, 0)
		return q.newClaim(lease.Request{Lock: "x", Tick: &lease.Tick{At: at, Previous: at.Add(-time.Second), NotBefore: time.Unix(-1, 0)}}.WithDefaults(), 0, nil)
	}
	for _, tc := range []struct {
		name    string
		older   claim
		abstain bool
	}{
		{"split", claim{r: claimFor(1).r, splitVote: true, result: lease.Result{Verdict: lease.Held}}, true},
		{"unknown", claim{r: claimFor(1).r, result: lease.Result{Verdict: lease.Unknown}}, true},
		{"held", claim{r: claimFor(1).r, result: lease.Result{Verdict: lease.Held}}, false},
		{"granted", claim{r: claimFor(1).r, result: lease.Result{Verdict: lease.Granted}}, false},
		{"no tick", claim{r: lease.Request{Lock: "x"}, splitVote: true, result: lease.Result{Verdict: lease.Held}}, false},
	} {
		younger := claimFor(2)
		younger.phase, younger.older = "row", &tc.older
		younger.nextCall()
		if younger.r.Abstain != tc.abstain || (younger.phase == "read") != tc.abstain {
			t.Errorf("%s: abstains: %v, phase %s", tc.name, younger.r.Abstain, younger.phase)
		}
	}
}
