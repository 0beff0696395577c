package replica

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// confirmLost is the time for which a replica must be missing before it counts as lost, from the expiry of its registration. An outage of Redis lets all
// registrations expire, but all replicas return soon after it.
const confirmLost = 2 * cluster.RegisterEvery

// watchReplicas is a duty of the leader. It logs the loss of each replica once, even if the leader changes.
func watchReplicas(ctx context.Context, j *journal.Journal, log hclog.Logger) {
	missing := lostWatch{}
	repeatEvery(ctx, cluster.RegisterEvery, func() {
		lost, err := j.LostReplicas(ctx)
		if err != nil {
			missing.since = nil // replicas may have been back in the meantime, so the confirmation starts over
			log.Debug("cannot look for lost replicas", "error", err)
			return
		}
		for _, l := range missing.confirmedLost(lost, time.Now()) {
			name := journal.NameOf(l.ID)
			claimed, err := j.ClaimLost(ctx, l)
			if err != nil {
				log.Debug("cannot claim a lost replica", "replica_lost", name, "error", err)
			}
			if claimed {
				log.Warn("replica lost", "replica_lost", name, "last_seen", l.Seen.UTC().Format(time.RFC3339))
			}
		}
	})
}

// A lostWatch distinguishes lost replicas from replicas that are only late.
type lostWatch struct{ since map[string]time.Time }

// confirmedLost returns the replicas that were missing in all checks for at least confirmLost.
func (w *lostWatch) confirmedLost(lost []journal.LostReplica, now time.Time) (all []journal.LostReplica) {
	since := map[string]time.Time{}
	for _, l := range lost {
		first, known := w.since[l.ID]
		if !known {
			first = now
		}
		since[l.ID] = first
		if now.Sub(first) >= confirmLost {
			all = append(all, l)
		}
	}
	w.since = since
	return all
}
