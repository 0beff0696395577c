package replica

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

// confirmLost is how much longer than its entry a replica must be missing: after an outage of Redis all entries have ended, and all replicas are back
// soon.
const confirmLost = 2 * operator.RegisterEvery

// watchReplicas is a duty of the leader: it logs, once in the cluster, each replica that has disappeared.
func watchReplicas(ctx context.Context, j *journal.Journal, log hclog.Logger) {
	missing := lostWatch{}
	every(ctx, operator.RegisterEvery, func() {
		lost, err := j.LostReplicas(ctx)
		if err != nil {
			missing.since = nil // the time without a list proves nothing, so the confirmation begins again
			log.Debug("cannot look for lost replicas", "error", err)
			return
		}
		for _, l := range missing.confirmed(lost, time.Now()) {
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

// lostWatch distinguishes replicas that are lost from those that are late.
type lostWatch struct{ since map[string]time.Time }

// confirmed are those that have been missing at each look for long enough.
func (w *lostWatch) confirmed(lost []journal.LostReplica, now time.Time) (all []journal.LostReplica) {
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
