package journal

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// history reads and writes the records of runs and settled ticks, with their output. The formats are in record.go.
type history struct {
	*namespace
	cluster bool // set for a Redis Cluster, in which a MULTI can have the keys of one job only
	runs    int
	maxAge  time.Duration
	// factsAge is the time for which the streak and the durations of a job are kept after its last record.
	factsAge time.Duration
	blocks   blocks
	first    func(Record)
	posts    func(*Record) []string

	mu     sync.Mutex
	excess map[string][]string // by job: runs that the next write to the job removes
	unsure map[string]bool     // records whose write Redis did not answer, by job and RunID
}

const (
	// maxBatch and maxBatchBytes limit the records and the bytes of output in one round trip, so that a long batch does not block Redis for other clients.
	maxBatch      = 500
	maxBatchBytes = 4 << 20
	// trimBatch is the maximum number of records of a job that one write removes. After a limit was lowered, several writes may be needed.
	trimBatch = 1000
	// clusterCalls is the number of jobs that are written in parallel to a Redis Cluster.
	clusterCalls = 16
)

// Record writes records of runs, usually in one round trip. Several replicas may write records of the same run, repeatedly and in any order: the package
// comment defines which record counts. A failure of one job's records does not affect other jobs. The error lists all failures, and the caller may repeat the
// whole batch. An invalid record causes an error that wraps ErrInvalid.
func (h *history) Record(ctx context.Context, records []Record) error {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	var errs multierr.List
	for len(records) > 0 {
		n := batchSize(records)
		errs.Add(h.recordBatch(ctx, records[:n]))
		records = records[n:]
	}
	return wrapIf("write the history", errs.Err())
}

// batchSize returns the number of records that fit into one round trip, at least one.
func batchSize(records []Record) int {
	bytes := 0
	for i, r := range records {
		if r.Output != nil {
			bytes += len(*r.Output)
		}
		if i == maxBatch || i > 0 && bytes > maxBatchBytes {
			return i
		}
	}
	return len(records)
}

// recordBatch writes one batch with one MULTI for all jobs. A Redis Cluster allows only one hash tag per MULTI, so there each job has its own MULTI, and
// several are sent in parallel.
func (h *history) recordBatch(ctx context.Context, records []Record) error {
	jobs, errs := h.groupByJob(records)
	if len(jobs) == 0 {
		return errs
	}
	if !h.cluster {
		return multierr.Join(errs, h.commitJobs(ctx, jobs, true))
	}
	var (
		calls sync.WaitGroup
		limit = make(chan struct{}, clusterCalls)
		fails = make([]error, len(jobs))
	)
	for i, w := range jobs {
		limit <- struct{}{}
		calls.Go(func() {
			defer func() { <-limit }()
			fails[i] = h.commitJobs(ctx, []*jobWrite{w}, false)
		})
	}
	calls.Wait()
	cmds, err := h.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		h.queueIndex(ctx, p, jobs)
		return nil
	})
	return multierr.Join(errs, multierr.Join(fails...), allErrors(ctx, cmds, err))
}

// A jobWrite is the part of a batch for one job, with the replies from Redis.
type jobWrite struct {
	job     string
	records []encodedRecord
	latest  time.Time     // the newest time of the records
	posted  bool          // a record was added to the outbox
	dropped *redis.IntCmd // number of records that the full outbox has lost; nil if none was added

	beyond, old, oldRunning *redis.StringSliceCmd // replies that list runs to remove

	claims []claim

	failures *redis.IntCmd // number of members of the streak; nil if no record is a failure
	doubtful []doubtful
}

type encodedRecord struct {
	Record
	text []byte
}

// groupByJob groups records by job. It leaves out invalid records, and returns their errors.
func (h *history) groupByJob(records []Record) ([]*jobWrite, error) {
	var (
		errs  multierr.List
		jobs  []*jobWrite
		byJob = map[string]*jobWrite{}
	)
	for _, r := range records {
		err := checkWritable(&r)
		if err != nil {
			errs.Add(err)
			continue
		}
		text, err := encodeRecord(r)
		if err != nil {
			errs.Add(err)
			continue
		}
		w := byJob[r.Job]
		if w == nil {
			w = &jobWrite{job: r.Job}
			byJob[r.Job] = w
			jobs = append(jobs, w)
		}
		w.records = append(w.records, encodedRecord{r, text})
		if m := momentOf(&r); m.After(w.latest) {
			w.latest = m
		}
	}
	return jobs, errs.Err()
}

// commitJobs writes the records of jobs in one MULTI, and also updates the indexes if index is set. It stores the runs that the next write to each job must
// remove.
func (h *history) commitJobs(ctx context.Context, jobs []*jobWrite, index bool) error {
	cmds, err := h.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for _, w := range jobs {
			h.queueJob(ctx, p, w)
		}
		if index {
			h.queueIndex(ctx, p, jobs)
		}
		return nil
	})
	h.rememberExcess(jobs)
	h.reportFirst(jobs)
	return multierr.Join(allErrors(ctx, cmds, err), h.settleStreaks(ctx, jobs), h.noteDropped(ctx, jobs))
}

// queueIndex updates the indexes of jobs and of failures, which serve readers of all jobs.
func (h *history) queueIndex(ctx context.Context, p redis.Pipeliner, jobs []*jobWrite) {
	var latest time.Time
	for _, w := range jobs {
		p.ZAddGT(ctx, h.key("history"), redis.Z{Score: float64(w.latest.UnixMicro()), Member: w.job})
		if w.latest.After(latest) {
			latest = w.latest
		}
	}
	p.ZRemRangeByScore(ctx, h.key("history"), "-inf", formatNumber(latest.Add(-h.maxAge).UnixMicro()-1))
	p.PExpire(ctx, h.key("history"), h.maxAge)
	h.queueFailures(ctx, p, jobs)
	h.queuePostedIndex(ctx, p, jobs)
}

func (h *history) queueJob(ctx context.Context, p redis.Pipeliner, w *jobWrite) {
	runs, records, output := h.jobKey(w.job, "runs"), h.jobKey(w.job, "records"), h.jobKey(w.job, "output")
	h.queueRemoval(ctx, p, w.job)
	for _, r := range w.records {
		// LT: the score of a run never rises, so a late "running" does not put the run above the ended ones.
		p.ZAddLT(ctx, runs, redis.Z{Score: scoreOf(&r.Record), Member: r.RunID})
		h.queueClaim(ctx, p, w, r)
		h.queueStreak(ctx, p, w, r)
		if lighter := lighterFields(weightOf(&r.Record), r.RunID); len(lighter) > 0 {
			p.HDel(ctx, records, lighter...)
		}
		if r.Output != nil && weightOf(&r.Record) == weightEnd {
			p.ZAdd(ctx, output, blockMembers(h.blocks.splitOutput(outputPrefix(momentOf(&r.Record), r.RunID), *r.Output))...)
		}
	}
	h.queuePosted(ctx, p, w)
	oldest := w.latest.Add(-h.maxAge)
	w.beyond = p.ZRevRange(ctx, runs, int64(h.runs), int64(h.runs+trimBatch-1))
	w.old = p.ZRangeByScore(ctx, runs, olderThan(0, oldest))
	w.oldRunning = p.ZRangeByScore(ctx, runs, olderThan(runningScore, oldest))
	p.ZRemRangeByRank(ctx, output, 0, int64(-h.blocks.count-1))
	p.ZRemRangeByLex(ctx, output, "-", "("+outputPrefix(oldest, ""))
	for _, key := range []string{runs, records, output} {
		p.PExpire(ctx, key, h.maxAge)
	}
	p.PExpire(ctx, h.jobKey(w.job, "streak"), h.factsAge)
}

func (h *history) queueRemoval(ctx context.Context, p redis.Pipeliner, job string) {
	h.mu.Lock()
	ids := h.excess[job]
	h.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	var (
		fields  []string
		members []any
	)
	for _, id := range ids {
		fields = append(fields, fieldName(weightEnd, id))
		fields = append(fields, lighterFields(weightEnd, id)...)
		members = append(members, id)
	}
	p.HDel(ctx, h.jobKey(job, "records"), fields...)
	p.ZRem(ctx, h.jobKey(job, "runs"), members...)
}

// rememberExcess stores the excess runs of jobs, which the next write to each job removes. Another replica may remove them first, which does no harm. A run
// stays in excess, because later writes only add newer runs.
func (h *history) rememberExcess(jobs []*jobWrite) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range jobs {
		if errors.Join(w.beyond.Err(), w.old.Err(), w.oldRunning.Err()) != nil {
			continue
		}
		ids := slices.Concat(w.beyond.Val(), w.old.Val(), w.oldRunning.Val())
		if len(ids) == 0 {
			delete(h.excess, w.job)
			continue
		}
		h.excess[w.job] = ids
	}
}

// olderThan returns the range of scores of the records before t. base is 0 for ended runs and runningScore for runs in progress.
func olderThan(base int64, t time.Time) *redis.ZRangeBy {
	return &redis.ZRangeBy{
		Min:   formatNumber(base),
		Max:   "(" + formatNumber(base+max(t.UnixMicro(), 0)),
		Count: trimBatch,
	}
}

func fieldName(weight byte, id string) string { return string(weight) + id }

// lighterFields returns the fields that a record of the given weight makes obsolete. The running record stays beside an abandoned one, because only the running
// record has the start of the run.
func lighterFields(weight byte, id string) []string {
	if weight == weightEnd {
		return []string{fieldName(weightAbandoned, id), fieldName(weightRunning, id)}
	}
	return nil
}

func blockMembers(blocks []string) []redis.Z {
	zs := make([]redis.Z, len(blocks))
	for i, b := range blocks {
		zs[i].Member = b
	}
	return zs
}

// A claim is the write of a final record. A run can have two: an observer writes that it was abandoned, and the holder writes its outcome. Only the record that
// Redis stored first is passed to Config.First.
type claim struct {
	encodedRecord
	key    string
	ended  *redis.BoolCmd   // whether Redis already had a final record of the run with the other weight
	set    *redis.BoolCmd   // whether Redis had no record of the run with this weight, and stored this one
	stands *redis.StringCmd // the stored record of this weight; nil if Redis has answered all earlier writes of this record
}

// queueClaim queues the write of a record. The same MULTI queries whether Redis already has a final record of the run. A separate query would cost a round trip
// for each of the many records after an outage. If only that query failed, it would not be repeated, because callers repeat only failed writes.
func (h *history) queueClaim(ctx context.Context, p redis.Pipeliner, w *jobWrite, r encodedRecord) {
	records, name := h.jobKey(w.job, "records"), fieldName(weightOf(&r.Record), r.RunID)
	other := map[byte]byte{weightEnd: weightAbandoned, weightAbandoned: weightEnd}[weightOf(&r.Record)]
	if weightOf(&r.Record) == weightRunning && r.Attempt > 1 { // overwrites the record of the previous attempt, which the same replica wrote
		p.HSet(ctx, records, name, r.text)
		return
	}
	if h.first == nil || other == 0 {
		p.HSetNX(ctx, records, name, r.text)
		return
	}
	c := claim{encodedRecord: r, key: w.job + "|" + r.RunID, ended: p.HExists(ctx, records, fieldName(other, r.RunID))}
	c.set = p.HSetNX(ctx, records, name, r.text)
	if h.isUnsure(c.key) {
		c.stands = p.HGet(ctx, records, name)
	}
	w.claims = append(w.claims, c)
}

// mostUnsure is the maximum number of unanswered writes that are remembered. If there are more, some records may never be passed to Config.First.
const mostUnsure = 20_000

// reportFirst calls Config.First with each record of jobs that is the first final record of its run. Callers repeat a write that Redis did not answer. If Redis
// has exactly the repeated record, the unanswered write stored it, and the record counts as the first.
func (h *history) reportFirst(jobs []*jobWrite) {
	for _, w := range jobs {
		for _, c := range w.claims {
			if c.hasFailed() {
				h.markUnsure(c.key)
				continue
			}
			h.clearUnsure(c.key)
			if c.isFirst() {
				h.first(c.Record)
			}
		}
	}
}

func (c *claim) hasFailed() bool {
	return c.set.Err() != nil || c.ended.Err() != nil || c.stands != nil && c.stands.Err() != nil
}

func (c *claim) isFirst() bool {
	return !c.ended.Val() && (c.set.Val() || c.stands != nil && c.stands.Val() == string(c.text))
}

func (h *history) markUnsure(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.unsure) < mostUnsure {
		h.unsure[key] = true
	}
}

func (h *history) isUnsure(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unsure[key]
}

func (h *history) clearUnsure(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.unsure, key)
}
