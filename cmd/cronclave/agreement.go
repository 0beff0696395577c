package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/journal"
)

// mostDiffering is of how many jobs it is told that replicas disagree on them; the others are counted.
const mostDiffering = 20

// camps are the names of the replicas that have the same configuration, by its digest.
type camps map[string][]string

func campsOf(replicas []journal.Replica) camps {
	c := camps{}
	for _, r := range replicas {
		c[r.ConfigDigest] = append(c[r.ConfigDigest], r.Name)
	}
	for _, names := range c {
		slices.Sort(names)
	}
	return c
}

// String names them in an order of their own.
func (c camps) String() string {
	var parts []string
	for digest, names := range c {
		parts = append(parts, fmt.Sprintf("%s (%.12s)", strings.Join(names, ", "), digest))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// differences tells where the configurations differ. digests are those of their jobs, which replicas of before there were any don't tell.
func (c camps) differences(digests map[string]map[string]string) []string {
	jobs, silent := map[string]bool{}, false
	for config := range c {
		silent = silent || digests[config] == nil
		for job := range digests[config] {
			jobs[job] = true
		}
	}
	var told []string
	more := 0
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		switch line := c.difference(job, digests); {
		case line == "":
		case len(told) == mostDiffering:
			more++
		default:
			told = append(told, line)
		}
	}
	switch {
	case more > 0:
		told = append(told, fmt.Sprintf("and %d more jobs", more))
	case len(told) == 0 && !silent:
		told = append(told, "not in a job, but in [history]")
	}
	return told
}

// difference tells which replicas have a job in which form; "" if all that tell have the same.
func (c camps) difference(job string, digests map[string]map[string]string) string {
	forms := map[string][]string{}
	for config, names := range c {
		if jobs := digests[config]; jobs != nil {
			forms[jobs[job]] = append(forms[jobs[job]], names...)
		}
	}
	if len(forms) < 2 {
		return ""
	}
	var parts []string
	for form, names := range forms {
		if form == "" {
			form = "none"
		}
		slices.Sort(names)
		parts = append(parts, strings.Join(names, ", ")+" ("+form+")")
	}
	slices.Sort(parts)
	return fmt.Sprintf("job %s: %s", job, strings.Join(parts, "; "))
}

// disagreement tells where camps differ, as far as the replicas have told.
func disagreement(ctx context.Context, j *journal.Journal, c camps) ([]string, error) {
	digests, err := j.Digests(ctx, slices.Sorted(maps.Keys(c)))
	return c.differences(digests), err //nolint:wrapcheck // it tells what it was doing
}

// tellDigests keeps what tells this replica's jobs from those of others.
func (r *replica) tellDigests(ctx context.Context) {
	cfg := r.cfg.Load()
	if err := r.journal.KeepDigests(ctx, cfg.Digest(), cfg.JobDigests(), registerTTL); err != nil {
		r.log.Debug("the digests of jobs are not told", "error", err)
	}
}

// compare logs that replicas disagree on the configuration, once for each change, until ctx ends. It tells only what two looks have
// found: while a new configuration is rolled out replicas differ for a moment.
func (r *replica) compare(ctx context.Context) {
	var last, told string // "" for agreement
	every(ctx, registerEvery, func() {
		known := r.peers.all.Load()
		if known == nil {
			return
		}
		c, now := campsOf(known.replicas), ""
		if len(c) > 1 {
			now = c.String()
		}
		settled := now == last
		last = now
		switch {
		case !settled || now == told:
			return
		case now == "":
			r.log.Info("the replicas agree on the configuration again", "code", "config_differs")
		default:
			where, err := disagreement(ctx, r.journal, c)
			if err != nil && ctx.Err() != nil {
				return
			}
			r.log.Warn("replicas run different configurations", "code", "config_differs", "replicas", now, "differ", strings.Join(where, "; "))
		}
		told = now
	})
}
