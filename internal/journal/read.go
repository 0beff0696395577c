package journal

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// Runs returns the n newest records of a job, or of all jobs if job is "". If output is set, it also reads their output. Runs in progress come before ended
// runs. Both are sorted from new to old, the former by their start, the latter by their end. If n is 0 or less, Runs returns all records.
//
// Values that no replica wrote are left out, with an error that wraps ErrCorrupt. The records that are returned are valid.
func (h *history) Runs(ctx context.Context, job string, n int, output bool) ([]Record, error) {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	records, err := h.newestRecords(ctx, job, n, output)
	if err != nil {
		return records, fmt.Errorf("read the history: %w", err)
	}
	return records, nil
}

func (h *history) newestRecords(ctx context.Context, job string, n int, output bool) ([]Record, error) {
	jobs := []string{job}
	if job == "" {
		var err error
		if jobs, err = h.readRecordedJobs(ctx); err != nil {
			return nil, err
		}
	}
	entries, damaged, err := h.newestEntries(ctx, jobs, n)
	if err != nil {
		return nil, err
	}
	records, more, err := h.readRecords(ctx, entries)
	damaged = multierr.Join(damaged, more)
	if err == nil && output {
		more, err = h.addOutput(ctx, records)
		damaged = multierr.Join(damaged, more)
	}
	if err != nil {
		return nil, err
	}
	return records, damaged
}

// Recent returns the n newest records per job, in the order of Runs. Jobs without records are not in the map. It returns errors like Runs.
func (h *history) Recent(ctx context.Context, jobs []string, n int) (map[string][]Record, error) {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	var (
		recent  = map[string][]Record{}
		damaged multierr.List
	)
	for part := range slices.Chunk(jobs, max(1, maxBatch/max(n, 1))) {
		entries, inIndex, err := h.readIndex(ctx, part, n)
		if err != nil {
			return nil, fmt.Errorf("read the history: %w", err)
		}
		records, inRecords, err := h.readRecords(ctx, entries)
		if err != nil {
			return nil, fmt.Errorf("read the history: %w", err)
		}
		for _, r := range records {
			recent[r.Job] = append(recent[r.Job], r)
		}
		damaged.Add(inIndex, inRecords)
	}
	return recent, wrapIf("read the history", damaged.Err())
}

// Run returns the record of one run, with its output; ok is false if there is none. It returns errors like Runs.
func (h *history) Run(ctx context.Context, job, id string) (r Record, ok bool, err error) {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	if !IsJobName(job) || !isRunID(id) {
		return r, false, nil
	}
	records, damaged, err := h.readRecords(ctx, []entry{{job: job, id: id}})
	if err == nil && damaged == nil {
		damaged, err = h.addOutput(ctx, records)
	}
	if err = multierr.Join(err, damaged); err != nil {
		return r, false, fmt.Errorf("read run %s of job %s: %w", id, job, err)
	}
	if len(records) == 0 {
		return r, false, nil
	}
	return records[0], true, nil
}

// RecordedJobs returns the names of the jobs that have records, including jobs that no replica has any more.
func (h *history) RecordedJobs(ctx context.Context) ([]string, error) {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	jobs, err := h.readRecordedJobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the jobs of the history: %w", err)
	}
	return jobs, nil
}

func (h *history) readRecordedJobs(ctx context.Context) ([]string, error) {
	cmd := h.redis.ZRevRange(ctx, h.key("history"), 0, mostListed-1)
	if err := errorOf(ctx, cmd); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(cmd.Val(), func(job string) bool { return !IsJobName(job) }), nil
}

type entry struct {
	job, id string
	score   float64
}

func (h *history) newestEntries(ctx context.Context, jobs []string, n int) (all []entry, damaged, err error) {
	var corrupt multierr.List
	for part := range slices.Chunk(jobs, maxBatch) {
		found, more, err := h.readIndex(ctx, part, n)
		if err != nil {
			return nil, nil, err
		}
		corrupt.Add(more)
		all = append(all, found...)
		slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(b.score, a.score) })
		if n > 0 && len(all) > n {
			all = all[:n]
		}
	}
	return all, corrupt.Err(), nil
}

// readIndex reads the n newest entries per job. It leaves out entries that are older than maxAge by the clock of Redis.
func (h *history) readIndex(ctx context.Context, jobs []string, n int) (found []entry, damaged, err error) {
	if n <= 0 || n > h.runs {
		n = h.runs
	}
	var clock *redis.TimeCmd
	cmds, err := h.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		clock = p.Time(ctx)
		for _, job := range jobs {
			p.ZRevRangeWithScores(ctx, h.jobKey(job, "runs"), 0, int64(n-1))
		}
		return nil
	})
	if damaged, err = sortErrors(ctx, cmds, err); err != nil {
		return nil, nil, err
	}
	var corrupt multierr.List
	corrupt.Add(damaged)
	oldest := clock.Val().Add(-h.maxAge)
	for i, job := range jobs {
		for _, z := range cmds[i+1].(*redis.ZSliceCmd).Val() {
			id, _ := z.Member.(string)
			if !isRunID(id) || !isScore(z.Score) {
				corrupt.Add(fmt.Errorf("%s: %w: run id %.40q of job %s", h.jobKey(job, "runs"), ErrCorrupt, id, job))
			} else if !scoreMoment(z.Score).Before(oldest) {
				found = append(found, entry{job, id, z.Score})
			}
		}
	}
	return found, corrupt.Err(), nil
}

// readRecords reads the heaviest record of each entry, in the order of the entries. It skips an entry whose record was removed.
func (h *history) readRecords(ctx context.Context, entries []entry) (records []Record, damaged, err error) {
	damaged, err = pipelineEach(ctx, h.namespace, entries, maxBatch, func(p redis.Pipeliner, e entry) *redis.SliceCmd {
		return p.HMGet(ctx, h.jobKey(e.job, "records"), fieldName(weightEnd, e.id), fieldName(weightAbandoned, e.id), fieldName(weightRunning, e.id))
	}, func(e entry, found *redis.SliceCmd) error {
		texts := found.Val()
		text, ok := firstString(texts)
		if !ok {
			return nil
		}
		r, err := decodeRecord(e.job, e.id, text)
		if err != nil {
			return fmt.Errorf("%s: %w", h.jobKey(e.job, "records"), err)
		}
		if r.Outcome == OutcomeAbandoned && r.Started.IsZero() {
			r.Started = startOf(e, texts[len(texts)-1])
		}
		records = append(records, r)
		return nil
	})
	return records, damaged, err
}

func startOf(e entry, running any) time.Time {
	text, _ := running.(string)
	r, err := decodeRecord(e.job, e.id, text)
	if err != nil {
		return time.Time{}
	}
	return r.Started
}

func firstString(values []any) (string, bool) {
	for _, v := range values {
		if s, ok := v.(string); ok {
			return s, true
		}
	}
	return "", false
}

const outputsAtOnce = 64

// AddOutput adds the output of runs to their records, as far as Redis still has it. It returns errors like Runs.
func (h *history) AddOutput(ctx context.Context, records []Record) error {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	damaged, err := h.addOutput(ctx, records)
	if err = cmp.Or(err, damaged); err != nil {
		return fmt.Errorf("read the output of runs: %w", err)
	}
	return nil
}

func (h *history) addOutput(ctx context.Context, records []Record) (damaged, err error) {
	var all []*Record
	for i := range records {
		all = append(all, &records[i])
	}
	return pipelineEach(ctx, h.namespace, all, outputsAtOnce, func(p redis.Pipeliner, r *Record) *redis.StringSliceCmd {
		from, to := outputRange(outputPrefix(momentOf(r), r.RunID))
		return p.ZRangeByLex(ctx, h.jobKey(r.Job, "output"), &redis.ZRangeBy{Min: from, Max: to})
	}, func(r *Record, blocks *redis.StringSliceCmd) error {
		r.Output = joinBlocks(outputPrefix(momentOf(r), r.RunID), blocks.Val())
		return nil
	})
}

// MaxFailures is the maximum number of failures of all jobs in the index of failures. The oldest failures are dropped first.
const MaxFailures = 10_000

// queueFailures adds the failures of a batch to the index of failures, which FailuresBetween reads. The records themselves are stored with their jobs.
func (h *history) queueFailures(ctx context.Context, p redis.Pipeliner, jobs []*jobWrite) {
	var members []redis.Z
	for _, w := range jobs {
		for _, r := range w.records {
			if r.Failed() {
				members = append(members, redis.Z{Score: float64(momentOf(&r.Record).UnixMicro()), Member: w.job + "|" + r.RunID})
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
	// More is the number of older failures in the window that are not in Records. Removed is the number of failures that were looked up but have no record in
	// the history any more.
	More, Removed int
	// Since is the end of the oldest failure in the index, if older ones may have been dropped; otherwise zero.
	Since time.Time
}

// mostParts is the maximum number of round trips per call, each for [maxBatch] failures. Without this limit, a call could take long if most failures in the
// index no longer have a record.
const mostParts = 4

// FailuresBetween returns the failures of a window. It reads only the index of failures and their records, so its cost does not grow with the number of other
// runs. It returns errors like Runs. Even with an error, the failures that it returns are valid.
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
			if r.Failed() { // false if the holder of an abandoned run has reported later that the run did not fail
				found.Records = append(found.Records, r)
			}
		}
	}
	beyond := max(len(found.Records)-req.Most, 0)
	found.Records = found.Records[:len(found.Records)-beyond]
	found.More = len(failures) + beyond
	return found, wrapIf("read the failures", multierr.Join(err, damaged))
}

// failuresIndex reads the failures of a window from the index, from new to old, and sets found.Since.
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
		case !IsJobName(job) || !isRunID(id) || !isScore(z.Score):
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
