package journal

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// keptDurations is the number of runs whose durations are kept, apart from the records of the job. Skipped ticks do not displace them. The key is a sorted set of
// these runs by their end. A member is the end of the run in microseconds, "|", and its duration in milliseconds. So a repeated write changes nothing.
const keptDurations = 10

// Durations returns the durations of the newest runs of jobs that ended ok, at most ten per job, from old to new. Jobs without such a run are not in
// the map. It returns errors like Runs.
func (h *history) Durations(ctx context.Context, jobs []string) (map[string][]time.Duration, error) {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	durations := map[string][]time.Duration{}
	damaged, err := pipelineEach(ctx, h.namespace, jobs, maxBatch, func(p redis.Pipeliner, job string) *redis.StringSliceCmd {
		return p.ZRange(ctx, h.jobKey(job, "took"), -keptDurations, -1)
	}, func(job string, members *redis.StringSliceCmd) error {
		for _, text := range members.Val() {
			_, took, _ := strings.Cut(text, "|")
			ms, err := strconv.ParseInt(took, 10, 64)
			if err != nil || ms < 0 || ms > longestRun.Milliseconds() {
				return fmt.Errorf("%s: %w: %.40q", h.jobKey(job, "took"), ErrCorrupt, text)
			}
			durations[job] = append(durations[job], time.Duration(ms)*time.Millisecond)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the durations of runs: %w", err)
	}
	return durations, wrapIf("read the durations of runs", damaged)
}

// RunsByID returns the records of runs, which ids lists by job, in the order of ids. It returns errors like Runs.
func (h *history) RunsByID(ctx context.Context, ids map[string][]string) (map[string][]Record, error) {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	var entries []entry
	for job, list := range ids {
		for _, id := range list {
			entries = append(entries, entry{job: job, id: id})
		}
	}
	entries = slices.DeleteFunc(entries, func(e entry) bool { return !IsJobName(e.job) || !isRunID(e.id) })
	records, damaged, err := h.readRecords(ctx, entries)
	if err != nil {
		return nil, fmt.Errorf("read records of runs: %w", err)
	}
	found := map[string][]Record{}
	for _, r := range records {
		found[r.Job] = append(found[r.Job], r)
	}
	return found, wrapIf("read records of runs", damaged)
}

// ForgetFacts removes the streaks and the durations of jobs, which would otherwise outlast the records of a removed job by a year.
func (h *history) ForgetFacts(ctx context.Context, jobs ...string) error {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	damaged, err := pipelineEach(ctx, h.namespace, jobs, maxBatch, func(p redis.Pipeliner, job string) *redis.IntCmd {
		return p.Del(ctx, h.jobKey(job, "streak"), h.jobKey(job, "took"))
	}, func(string, *redis.IntCmd) error { return nil })
	return wrapIf("remove what is left of removed jobs", multierr.Join(err, damaged))
}
