package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// life is whether a process lives, as far as that can be told from here.
type life int

const (
	unknownLife life = iota
	alive
	gone
)

const (
	// registrationDelay is how much later than registerEvery a replica that is up may register again: its call may take its time-out.
	registrationDelay = 2 * redisTimeout
	// lookForNamesakes is how often a replica that starts looks whether another one of its name registers again.
	lookForNamesakes = 250 * time.Millisecond
)

// claimName refuses the start of a replica while another one of its name is up. An entry of the registry outlives a replica that has crashed, which may be
// this one before: it holds nobody up if its process is known to be gone, or if it is not registered again in the time in which a living replica does that.
func (r *replica) claimName(ctx context.Context) error {
	first := map[string]time.Time{} // when others said that they were up, as it was first read, by their ids
	for begun := time.Now(); ; {
		others, err := r.namesakes(ctx)
		open := slices.DeleteFunc(slices.Clone(others), func(o journal.Replica) bool { return lifeOf(o.Process) == gone })
		for _, o := range open {
			if _, known := first[o.ID]; !known {
				first[o.ID] = o.Seen
			}
			if lifeOf(o.Process) == alive || o.Seen.After(first[o.ID]) {
				return exitError{exitFailed, fmt.Errorf("replica %s: another one of this name is up in namespace %s, since %s: give each a name of its own with --replica",
					r.name, r.cfg.Load().Namespace, stamp(o.Started))}
			}
		}
		waited := time.Since(begun) > registerEvery+registrationDelay
		if err == nil && len(open) == 0 || waited {
			if err != nil { // it is told when both are up
				r.log.Warn("cannot tell whether another replica has this name", "error", err)
			}
			r.replace(ctx, others)
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookForNamesakes):
		}
	}
}

// namesakes are the registered replicas of this one's name. Those that drain leave it soon.
func (r *replica) namesakes(ctx context.Context) ([]journal.Replica, error) {
	all, err := r.journal.Replicas(ctx)
	if errors.Is(err, journal.ErrCorrupt) { // the others are good
		err = nil
	}
	return r.ofThisName(all), err //nolint:wrapcheck // it tells what it was doing
}

func (r *replica) ofThisName(all []journal.Replica) []journal.Replica {
	var others []journal.Replica
	for _, o := range all {
		if o.Name == r.name && o.ID != r.id && !o.Draining {
			others = append(others, o)
		}
	}
	return others
}

// replace removes the entries of replicas whose name this one has taken over.
func (r *replica) replace(ctx context.Context, others []journal.Replica) {
	for _, o := range others {
		r.log.Info("taking the place of a replica that is gone", "started", o.Started, "seen", o.Seen)
		if err := r.journal.Deregister(ctx, o.ID); err != nil {
			r.log.Debug("not deregistered; the entry ends by itself", "error", err)
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

// sameNames warns of names that several replicas have which are up. An entry that was not renewed is of one that has crashed.
func sameNames(replicas []journal.Replica, now time.Time) (warnings []warning) {
	up := map[string]int{}
	for _, r := range replicas {
		if !r.Draining && now.Sub(r.Seen) < registerEvery+registrationDelay {
			up[r.Name]++
		}
	}
	for name, n := range up {
		if n > 1 {
			warnings = append(warnings, warning{"same_name", fmt.Sprintf("%d replicas are named %s: give each a name of its own with --replica", n, name)})
		}
	}
	slices.SortFunc(warnings, func(a, b warning) int { return strings.Compare(a.Message, b.Message) })
	return warnings
}
