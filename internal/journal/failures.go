package journal

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// MaxFailures is the maximum size of the index of failures, over all jobs. The oldest are dropped first.
const MaxFailures = 10_000

// queueFailures adds the failures of a batch to the index of failures, which FailuresBetween reads. The records themselves are stored with their jobs.
func (h *history) queueFailures(ctx context.Context, p redis.Pipeliner, jobs []*jobWrite) {
	var members []redis.Z
	for _, w := range jobs {
		for _, r := range w.words {
			if r.Failed() {
				members = append(members, redis.Z{Score: float64(r.moment().UnixMicro()), Member: w.job + "|" + r.RunID})
			}
		}
	}
	if len(members) == 0 {
		return
	}
	key := h.key("failures")
	p.ZAddLT(ctx, key, members...)
	p.ZRemRangeByRank(ctx, key, 0, -1-MaxFailures)
	p.PExpire(ctx, key, h.maxAge)
}

// A FailuresRequest selects the failures to read.
type FailuresRequest struct {
	From, Until time.Time // limits of the time at which a failure ended
	Includes    func(job string) bool
	Most        int // maximum number of records; the newest ones are returned
}

// FailuresFound are the failures of a window.
type FailuresFound struct {
	Records []Record // from new to old
	// More is the number of older failures in the window that are not in Records. Removed is the number of failures whose records were read but had been removed
	// from the history.
	More, Removed int
	// Since is the end of the oldest failure in the index, if older ones may have been dropped; otherwise zero.
	Since time.Time
}

// mostParts is the maximum number of round trips per call, each for [maxBatch] failures. Without it a call could take long, because most failures in the index
// may no longer have a record.
const mostParts = 4

// FailuresBetween returns the failures of a window. It reads the index of failures, so the number of other runs does not matter. It returns errors like Runs.
// Even with an error, the failures that it returns are valid.
func (h *history) FailuresBetween(ctx context.Context, req FailuresRequest) (found FailuresFound, err error) {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	failures, damaged, err := h.failuresIndex(ctx, req, &found)
	for n := 0; n < mostParts && len(failures) > 0 && len(found.Records) < req.Most; n++ {
		part := failures[:min(len(failures), maxBatch)]
		records, more, failed := h.readRecords(ctx, part)
		if failed != nil {
			err = failed
			break
		}
		failures = failures[len(part):]
		damaged = multierr.Join(damaged, more)
		found.Removed += len(part) - len(records)
		for _, r := range records {
			if r.Failed() { // false if an abandoned run was reported again by its holder, with another outcome
				found.Records = append(found.Records, r)
			}
		}
	}
	beyond := max(len(found.Records)-req.Most, 0)
	found.Records = found.Records[:len(found.Records)-beyond]
	found.More = len(failures) + beyond
	return found, wrapIf("read the failures", multierr.Join(err, damaged))
}

// failuresIndex reads the failures of a window from the index, from new to old.
func (h *history) failuresIndex(ctx context.Context, req FailuresRequest, found *FailuresFound) (failures []entry, damaged, err error) {
	var all *redis.ZSliceCmd
	var count *redis.IntCmd
	var oldest *redis.ZSliceCmd
	cmds, err := h.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		all = p.ZRangeByScoreWithScores(ctx, h.key("failures"), &redis.ZRangeBy{Min: formatNumber(req.From.UnixMicro()), Max: formatNumber(req.Until.UnixMicro()), Count: MaxFailures})
		count, oldest = p.ZCard(ctx, h.key("failures")), p.ZRangeWithScores(ctx, h.key("failures"), 0, 0)
		return nil
	})
	if damaged, err = sortErrors(ctx, cmds, err); err != nil {
		return nil, nil, err
	}
	for _, z := range slices.Backward(all.Val()) {
		text, _ := z.Member.(string)
		job, id, _ := strings.Cut(text, "|")
		switch {
		case !isName(job) || !isRunID(id) || !isScore(z.Score):
			damaged = multierr.Join(damaged, fmt.Errorf("%s: %w: %.40q", h.key("failures"), ErrCorrupt, text))
		case req.Includes(job):
			failures = append(failures, entry{job, id, z.Score})
		}
	}
	if first := oldest.Val(); count.Val() >= MaxFailures && len(first) > 0 && isScore(first[0].Score) {
		found.Since = scoreMoment(first[0].Score).UTC()
	}
	return failures, damaged, nil
}
