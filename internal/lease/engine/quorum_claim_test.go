package engine

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// The votes for an older tick were split, or nothing is known of it: the younger one may be settled, and takes no row.
// Promise: P5, quorum
func TestQuorumTickBehindAnOpenOneTakesNoRow(t *testing.T) {
	t.Parallel()
	var nodes []redis.UniversalClient
	for range 3 {
		nodes = append(nodes, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})) // no node is asked
	}
	c, err := New(Config{Quorum: nodes})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, n := range nodes {
			_ = n.Close()
		}
	}()
	claimFor := func(tick int64) *claim {
		at := time.Unix(tick, 0)
		return c.many().newClaim(Request{Lock: "x", Tick: &Tick{At: at, Previous: at.Add(-time.Second), NotBefore: time.Unix(-1, 0)}}.WithDefaults())
	}
	for _, tc := range []struct {
		name    string
		older   claim
		abstain bool
	}{
		{"split", claim{r: claimFor(1).r, torn: true, answer: Answer{Verdict: Held}}, true},
		{"unknown", claim{r: claimFor(1).r, answer: Answer{Verdict: Unknown}}, true},
		{"held", claim{r: claimFor(1).r, answer: Answer{Verdict: Held}}, false},
		{"granted", claim{r: claimFor(1).r, answer: Answer{Verdict: Granted}}, false},
		{"no tick", claim{r: Request{Lock: "x"}, torn: true, answer: Answer{Verdict: Held}}, false},
	} {
		younger := claimFor(2)
		younger.phase, younger.older = "row", &tc.older
		younger.next()
		if younger.r.Abstain != tc.abstain || (younger.phase == "read") != tc.abstain {
			t.Errorf("%s: abstains: %v, phase %s", tc.name, younger.r.Abstain, younger.phase)
		}
	}
}
