package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/proc"
)

const lookForNamesakes = 250 * time.Millisecond

// claimName returns an error if another replica with this name is up. The registration of a crashed replica, such as this replica's predecessor, remains for a
// while. It counts as stale if its process is known to be gone, or if it is not renewed in the time in which a living replica renews it. claimName returns the
// stale registrations, which the caller removes later.
func claimName(ctx context.Context, self journal.Replica, namespace string, j *journal.Journal, log hclog.Logger) ([]journal.Replica, error) {
	first := map[string]time.Time{} // by id: Seen at the first reading
	for begun := time.Now(); ; {
		others, err := readNamesakes(ctx, self, j)
		open := slices.DeleteFunc(slices.Clone(others), func(o journal.Replica) bool { return proc.LifeOf(o.Process) == proc.Gone })
		for _, o := range open {
			if _, known := first[o.ID]; !known {
				first[o.ID] = o.Seen
			}
			if proc.LifeOf(o.Process) == proc.Alive || o.Seen.After(first[o.ID]) {
				return nil, fmt.Errorf("another replica named %s runs in namespace %s since %s: give each replica its own name with --replica",
					self.Name, namespace, o.Started.UTC().Format(time.RFC3339))
			}
		}
		waited := time.Since(begun) > cluster.RegisterEvery+cluster.RegistrationDelay
		if err == nil && len(open) == 0 || waited {
			if err != nil { // a duplicate is reported later, when both replicas are registered
				log.Warn("cannot check whether another replica has this name", "error", err)
			}
			return others, nil
		}
		if !backoff.Sleep(ctx, lookForNamesakes) {
			return nil, nil
		}
	}
}

func readNamesakes(ctx context.Context, self journal.Replica, j *journal.Journal) ([]journal.Replica, error) {
	all, err := j.Replicas(ctx)
	if errors.Is(err, journal.ErrCorrupt) { // the other entries are valid
		err = nil
	}
	return namesakesOf(all, self), err //nolint:wrapcheck // the error names the operation
}

// namesakesOf returns the other replicas with this replica's name. It leaves out draining replicas, because they end soon.
func namesakesOf(all []journal.Replica, self journal.Replica) []journal.Replica {
	var others []journal.Replica
	for _, o := range all {
		if o.Name == self.Name && o.ID != self.ID && !o.Draining {
			others = append(others, o)
		}
	}
	return others
}

// replaceStale removes the registrations of replicas whose name this replica has taken over. This replica must be registered first. If a removed
// replica only stood still, it then finds this replica in the registry, and does not take its own missing registration for a loss of data.
func replaceStale(ctx context.Context, others []journal.Replica, j *journal.Journal, log hclog.Logger) {
	for _, o := range others {
		log.Info("stale registration replaced", "started", o.Started, "seen", o.Seen)
		if err := j.Deregister(ctx, o.ID); err != nil {
			log.Debug("stale registration not removed; it expires by itself", "error", err)
		}
	}
}

// A namesakeWatch warns about other replicas that are up and have this replica's name. Two such replicas may have started at the same time, or while Redis did
// not answer. Its zero value is ready for use.
type namesakeWatch struct {
	seen   map[string]time.Time // by id
	warned map[string]bool
}

// checkNamesakes calls warn for each replica in others that is up, once per replica. A replica is up if it has registered again since the last call.
func (w *namesakeWatch) checkNamesakes(others []journal.Replica, warn func(journal.Replica)) {
	seen, warned := map[string]time.Time{}, map[string]bool{}
	for _, o := range others {
		last, known := w.seen[o.ID]
		seen[o.ID], warned[o.ID] = o.Seen, w.warned[o.ID]
		if known && o.Seen.After(last) && !warned[o.ID] {
			warned[o.ID] = true
			warn(o)
		}
	}
	w.seen, w.warned = seen, warned
}
