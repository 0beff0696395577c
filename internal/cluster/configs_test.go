package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/journal"
)

// TestDisagreementsNameJobsAndReplicas names each job that differs between replicas, with the replicas of each version.
// Promise: P8
func TestDisagreementsNameJobsAndReplicas(t *testing.T) {
	replicas := []journal.Replica{{Name: "r2", ConfigDigest: "one"}, {Name: "r1", ConfigDigest: "one"}, {Name: "r3", ConfigDigest: "two"}, {Name: "r4", ConfigDigest: "three"}}
	same := map[string]string{"a": "aaaa", "b": "bbbb"}
	many := func(form string) map[string]string {
		jobs := map[string]string{}
		for n := range 30 {
			jobs[fmt.Sprintf("j%02d", n)] = form
		}
		return jobs
	}
	for name, tt := range map[string]struct {
		digests map[string]map[string]string
		want    []string
	}{
		"job": {map[string]map[string]string{"one": same, "two": {"a": "aaaa", "b": "other", "c": "cccc"}, "three": same},
			[]string{"job b: r1, r2, r4 (bbbb); r3 (other)", "job c: r1, r2, r4 (no such job); r3 (cccc)"}},
		"one of before": {map[string]map[string]string{"one": same, "three": {"a": "aaaa"}}, []string{"job b: r1, r2 (bbbb); r4 (no such job)"}},
		"none but one":  {map[string]map[string]string{"one": same}, nil},
		"no job":        {map[string]map[string]string{"one": same, "two": same, "three": same}, []string{"only [history]"}},
		"without jobs":  {map[string]map[string]string{"one": {}, "two": {"a": "aaaa"}}, []string{"job a: r1, r2 (no such job); r3 (aaaa)"}},
	} {
		if got := GroupByConfig(replicas).compareDigests(tt.digests); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	got := GroupByConfig(replicas[1:3]).compareDigests(map[string]map[string]string{"one": many("x"), "two": many("y")})
	if len(got) != maxDifferences+1 || got[maxDifferences] != "10 more jobs" || !strings.HasPrefix(got[0], "job j00: r1 (x); r3 (y)") {
		t.Errorf("of many: %q", got)
	}
}
