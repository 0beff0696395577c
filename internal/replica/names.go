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

// lookForNamesakes is how often a replica that starts looks whether another one of its name registers again.
const lookForNamesakes = 250 * time.Millisecond

// claimName refuses the start of a replica while another one of its name is up. The registry's entry outlives a replica that has crashed, which may
// be the predecessor of this one. Such an entry is no obstacle if its process is known to be gone, or if it is not renewed in the time in which a
// living replica renews it. It is returned, for [replace].
func claimName(ctx context.Context, self journal.Replica, namespace string, j *journal.Journal, log hclog.Logger) ([]journal.Replica, error) {
	first := map[string]time.Time{} // when others said that they were up, as it was first read, by their ids
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
			if err != nil { // the duplicate is reported once both are up
				log.Warn("cannot check whether another replica has this name", "error", err)
			}
			return others, nil
		}
		if !backoff.Sleep(ctx, lookForNamesakes) {
			return nil, nil
		}
	}
}

// readNamesakes reads the other replicas of this one's name that are registered.
func readNamesakes(ctx context.Context, self journal.Replica, j *journal.Journal) ([]journal.Replica, error) {
	all, err := j.Replicas(ctx)
	if errors.Is(err, journal.ErrCorrupt) { // the others are good
		err = nil
	}
	return namesakes(all, self), err //nolint:wrapcheck // the error names the operation
}

// namesakes are the other replicas of this one's name. Those that drain leave it soon.
func namesakes(all []journal.Replica, self journal.Replica) []journal.Replica {
	var others []journal.Replica
	for _, o := range all {
		if o.Name == self.Name && o.ID != self.ID && !o.Draining {
			others = append(others, o)
		}
	}
	return others
}

// replace removes the entries of replicas whose name this one has taken over. Call it when this one is registered: a replica that only stood still finds the
// one that has removed its entry then, and does not take that for a loss of data.
func replace(ctx context.Context, others []journal.Replica, j *journal.Journal, log hclog.Logger) {
	for _, o := range others {
		log.Info("stale registration replaced", "started", o.Started, "seen", o.Seen)
		if err := j.Deregister(ctx, o.ID); err != nil {
			log.Debug("stale registration not removed; it expires by itself", "error", err)
		}
	}
}

// namesakeWatch warns of other replicas of this one's name that are up: two may have started at the same time, or Redis was away. The zero value has seen none.
type namesakeWatch struct {
	seen   map[string]time.Time // by their ids
	warned map[string]bool
}

// look takes the others of this one's name. One is up if it has registered again since the last look.
func (w *namesakeWatch) look(others []journal.Replica, warn func(journal.Replica)) {
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
