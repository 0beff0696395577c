package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
	"github.com/cronclave/cronclave/internal/proc"
)

// lookForNamesakes is the interval at which a starting replica checks whether another replica of its name registers again.
const lookForNamesakes = 250 * time.Millisecond

// claimName returns an error while another replica of this name is up. The registration of a crashed replica, which may be this one's predecessor, outlives
// it. Such a registration is no obstacle if its process is known to be gone, or if it is not renewed in the time in which a living replica renews it.
// claimName returns these registrations, which the caller removes later.
func claimName(ctx context.Context, self journal.Replica, namespace string, j *journal.Journal, log hclog.Logger) ([]journal.Replica, error) {
	first := map[string]time.Time{} // Seen of the others when they were first read, by id
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
		waited := time.Since(begun) > operator.RegisterEvery+operator.RegistrationDelay
		if err == nil && len(open) == 0 || waited {
			if err != nil { // the duplicate is reported when both are up
				log.Warn("cannot check whether another replica has this name", "error", err)
			}
			return others, nil
		}
		if !backoff.Sleep(ctx, lookForNamesakes) {
			return nil, nil
		}
	}
}

// readNamesakes reads the registered other replicas of this one's name.
func readNamesakes(ctx context.Context, self journal.Replica, j *journal.Journal) ([]journal.Replica, error) {
	all, err := j.Replicas(ctx)
	if errors.Is(err, journal.ErrCorrupt) { // the other entries are good
		err = nil
	}
	return namesakesOf(all, self), err //nolint:wrapcheck // the error names the operation
}

// namesakesOf returns the other replicas of this one's name, without those that drain: they end soon.
func namesakesOf(all []journal.Replica, self journal.Replica) []journal.Replica {
	var others []journal.Replica
	for _, o := range all {
		if o.Name == self.Name && o.ID != self.ID && !o.Draining {
			others = append(others, o)
		}
	}
	return others
}

// replaceStale removes the registrations of replicas whose name this one has taken over. This replica must be registered before: a replica that only stood still
// then finds its successor, and does not take the missing registration for a loss of data.
func replaceStale(ctx context.Context, others []journal.Replica, j *journal.Journal, log hclog.Logger) {
	for _, o := range others {
		log.Info("stale registration replaced", "started", o.Started, "seen", o.Seen)
		if err := j.Deregister(ctx, o.ID); err != nil {
			log.Debug("stale registration not removed; it expires by itself", "error", err)
		}
	}
}

// A namesakeWatch warns about other replicas of this one's name that are up: two may have started at the same time, or while Redis did not answer. Its zero
// value is ready for use.
type namesakeWatch struct {
	seen   map[string]time.Time // by id
	warned map[string]bool
}

// checkNamesakes evaluates the other replicas of this one's name. A replica is up if it has registered again since the last call.
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
