package replica

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// A problemWatch records the start of each problem of this replica about which status warns. Its zero value has no problems.
type problemWatch struct {
	since map[string]time.Time // by the code of the warning
	peers []string             // codes of problems with other replicas, at the last check
}

// addSince adds the starts of the current problems to a registration.
func (w *problemWatch) addSince(entry journal.Replica) journal.Replica {
	since := map[string]time.Time{}
	for _, code := range append(problemsOf(entry), w.peers...) {
		if since[code] = entry.Seen.UTC(); !w.since[code].IsZero() {
			since[code] = w.since[code]
		}
	}
	w.since, entry.Since = since, since
	return entry
}

// problemsOf returns the codes of the problems that concern only the replica itself.
func problemsOf(entry journal.Replica) (codes []string) {
	for code, has := range map[string]bool{
		cluster.CodeConfigRefused: entry.Refused != "", cluster.CodeCannotStart: entry.Unable != "" || len(entry.Unstartable) > 0, cluster.CodeHeartbeat: entry.Heartbeat != "",
		cluster.CodeRedisAccess: entry.RedisAccess != "",
		cluster.CodeClockOff:    cluster.ClockOffsetOf(entry).Excessive(),
	} {
		if has {
			codes = append(codes, code)
		}
	}
	return codes
}

// checkPeers checks a list of all replicas for problems that concern several replicas.
func (w *problemWatch) checkPeers(replicas []journal.Replica, self journal.Replica) {
	w.peers = nil
	if len(cluster.GroupByConfig(replicas)) > 1 {
		w.peers = append(w.peers, cluster.CodeConfigDiffers)
	}
	if cluster.CountUp(replicas, self.Seen) < cluster.Expected(replicas) {
		w.peers = append(w.peers, cluster.CodeTooFew)
	}
	if slices.ContainsFunc(namesakesOf(replicas, self), func(o journal.Replica) bool { return cluster.OccupiesName(o, self.Seen) }) {
		w.peers = append(w.peers, cluster.CodeSameName)
	}
}
