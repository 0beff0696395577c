package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/journal"
)

// maxDifferences is the maximum number of jobs whose differences are listed. Further jobs are only counted.
const maxDifferences = 20

// ConfigGroups maps the digest of a configuration to the names of the replicas that have it.
type ConfigGroups map[string][]string

// GroupByConfig groups replicas by their configuration.
func GroupByConfig(replicas []journal.Replica) ConfigGroups {
	g := ConfigGroups{}
	for _, r := range replicas {
		g[r.ConfigDigest] = append(g[r.ConfigDigest], r.Name)
	}
	for _, names := range g {
		slices.Sort(names)
	}
	return g
}

// String returns the groups in alphabetical order.
func (g ConfigGroups) String() string {
	var parts []string
	for digest, names := range g {
		parts = append(parts, fmt.Sprintf("%s (%.12s)", strings.Join(names, ", "), digest))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// Differences returns one line for each job that differs between the configurations, as far as the replicas have published the digests of their jobs.
func (g ConfigGroups) Differences(ctx context.Context, j *journal.Journal) ([]string, error) {
	digests, err := j.Digests(ctx, slices.Sorted(maps.Keys(g)))
	return g.compareDigests(digests), err //nolint:wrapcheck // it says what it was doing
}

// compareDigests returns the lines of Differences. digests has the digests of jobs, by configuration and job. Replicas of older versions publish none.
func (g ConfigGroups) compareDigests(digests map[string]map[string]string) []string {
	jobs, incomplete := map[string]bool{}, false
	for config := range g {
		incomplete = incomplete || digests[config] == nil
		for job := range digests[config] {
			jobs[job] = true
		}
	}
	var lines []string
	more := 0
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		switch line := g.jobDifference(job, digests); {
		case line == "":
		case len(lines) == maxDifferences:
			more++
		default:
			lines = append(lines, line)
		}
	}
	switch {
	case more > 0:
		lines = append(lines, fmt.Sprintf("%d more jobs", more))
	case len(lines) == 0 && !incomplete:
		lines = append(lines, "only [history]")
	}
	return lines
}

// jobDifference returns a line with the digests of a job and the replicas that have each of them; "" if all known digests are equal.
func (g ConfigGroups) jobDifference(job string, digests map[string]map[string]string) string {
	forms := map[string][]string{}
	for config, names := range g {
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
			form = "no such job"
		}
		slices.Sort(names)
		parts = append(parts, strings.Join(names, ", ")+" ("+form+")")
	}
	slices.Sort(parts)
	return fmt.Sprintf("job %s: %s", job, strings.Join(parts, "; "))
}
