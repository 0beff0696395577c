package dashboard

import (
	"fmt"
	"strings"

	"github.com/cronclave/cronclave/internal/cluster"
)

// kinds are the problems that a verdict counts, the worst first. A problem that is counted by its code is not counted again by its level. Advice is counted
// only if its code is listed.
var kinds = []struct{ code, one, many string }{
	{"job_failed", "1 job fails", "%d jobs fail"},
	{"job_missed", "1 job missed its tick", "%d jobs missed ticks"},
	{"replica_lost", "1 replica lost", "%d replicas lost"},
	{string(cluster.LevelError), "1 error", "%d errors"},
	{string(cluster.LevelWarning), "1 warning", "%d warnings"},
	{"stood_still", "1 replica stood still", "%d replicas stood still"},
	{cluster.CodePoolFull, "1 pool full", "%d pools full"},
}

// verdictOf summarizes the state of a cluster in one line, with a mark.
func verdictOf(st *cluster.Status) (string, mark) {
	counts := map[string]int{}
	for _, p := range st.Problems {
		switch {
		case p.Code == "no_replica":
			return "No replica is up", markBad
		case p.Code == "job_failed", p.Code == "job_missed", p.Code == "replica_lost", p.Level == cluster.LevelAdvice:
			counts[p.Code]++
		default:
			counts[string(p.Level)]++
		}
	}
	var parts []string
	for _, k := range kinds {
		switch n := counts[k.code]; {
		case n == 1:
			parts = append(parts, k.one)
		case n > 1:
			parts = append(parts, fmt.Sprintf(k.many, n))
		}
	}
	switch {
	case len(parts) == 0:
		return "All is well", markOK
	case counts["job_failed"]+counts[string(cluster.LevelError)] > 0:
		return strings.Join(parts, ", "), markBad
	}
	return strings.Join(parts, ", "), markWarning
}
