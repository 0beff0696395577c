package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

const (
	// maxOutbox is the maximum number of records in the outbox of a job. Beyond it, the oldest ones are dropped.
	maxOutbox = 1000
	// outboxJobs and outboxRecords are the numbers of jobs, and of records of each of them, that Outbox reads at a time.
	outboxJobs    = 100
	outboxRecords = 100
)

// A Posted is a record in the outbox of its job.
type Posted struct {
	Record
	// Targets are the targets of notifications that get the event of the record. They are the choice of the replica that wrote the record, because the leader may
	// have another configuration, in which the job or the target is missing.
	Targets []string
	text    string
}

// postedIDs is what the entry of an outbox has beside the fields of the record.
type postedIDs struct {
	RunID   string   `json:"run_id"`
	Targets []string `json:"targets"`
}

// queuePosted adds the records of a job for which Config.Posts returns targets to the outbox of the job. The MULTI that stores a record also posts it, so a replica that
// dies does not lose a notification. A second write of the same record changes nothing, unless the outbox was cleared in between.
func (h *history) queuePosted(ctx context.Context, p redis.Pipeliner, w *jobWrite) {
	key := h.jobKey(w.job, "outbox")
	for _, r := range w.records {
		if h.posts == nil || r.Retried {
			continue
		}
		if targets := h.posts(&r.Record); len(targets) > 0 {
			p.ZAddNX(ctx, key, redis.Z{Score: float64(momentOf(&r.Record).UnixMicro()), Member: postedText(r.text, targets)})
			w.posted = true
		}
	}
	if w.posted {
		w.dropped = p.ZRemRangeByRank(ctx, key, 0, -1-maxOutbox)
		p.PExpire(ctx, key, keepDeliveries)
	}
}

const outboxDropped = "outbox-dropped"

// noteDropped counts the records that full outboxes have lost. An outbox is full only if no leader has emptied it for long.
func (h *history) noteDropped(ctx context.Context, jobs []*jobWrite) error {
	cmds, err := h.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, w := range jobs {
			if w.dropped != nil && w.dropped.Val() > 0 {
				p.HIncrBy(ctx, h.key(outboxDropped), w.job, w.dropped.Val())
				p.PExpire(ctx, h.key(outboxDropped), keepDeliveries)
			}
		}
		return nil
	})
	return allErrors(ctx, cmds, err)
}

// DroppedRecords returns the number of records that the outbox of each job has lost because it was full, less what ClearDropped has subtracted.
func (h *history) DroppedRecords(ctx context.Context) (map[string]int, error) {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	found := h.redis.HGetAll(ctx, h.key(outboxDropped))
	if err := errorOf(ctx, found); err != nil {
		return nil, fmt.Errorf("read what full outboxes have lost: %w", err)
	}
	dropped := map[string]int{}
	for job, text := range found.Val() {
		if n, err := strconv.Atoi(text); err == nil && IsJobName(job) && n > 0 {
			dropped[job] = n
		}
	}
	return dropped, nil
}

// ClearDropped subtracts what was counted. An outbox may have lost more in the meantime. A counter that is smaller was cleared by another leader, and what it has is
// new. If ClearDropped fails, the records are counted twice.
func (h *history) ClearDropped(ctx context.Context, counted map[string]int) error {
	if len(counted) == 0 {
		return nil
	}
	key := h.key(outboxDropped)
	return wrapIf("clear what full outboxes have lost", changeKey(ctx, h.namespace, key, func(ctx context.Context, tx *redis.Tx) error {
		found := tx.HGetAll(ctx, key)
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			for job, n := range counted {
				if left, _ := strconv.Atoi(found.Val()[job]); left > n {
					p.HIncrBy(ctx, key, job, -int64(n))
				} else if left == n {
					p.HDel(ctx, key, job)
				}
			}
			return found.Err()
		})
		return err
	}))
}

// postedText returns the entry of an outbox: the JSON of a record, and the targets as a further field.
func postedText(record []byte, targets []string) string {
	return fmt.Sprintf(`{"targets":["%s"],%s`, strings.Join(targets, `","`), record[1:]) // the names of targets need no escaping
}

// queuePostedIndex adds the jobs of a batch to the index of outboxes. In a Redis Cluster it is not in the MULTI of the records: see [history.FindOutboxes].
func (h *history) queuePostedIndex(ctx context.Context, p redis.Pipeliner, jobs []*jobWrite) {
	for _, w := range jobs {
		if w.posted {
			p.ZAddNX(ctx, h.key("outboxes"), redis.Z{Score: float64(w.latest.UnixMicro()), Member: w.job})
		}
	}
}

// Outbox returns the records that wait in the outboxes of jobs. The records of one job are in order, from old to new. If there are many, it returns a part of them, and more is
// true. Damaged entries are removed, and reported by an error that wraps [ErrCorrupt]; the returned records are valid.
func (h *history) Outbox(ctx context.Context) (records []Posted, more bool, err error) {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	index := h.redis.ZRange(ctx, h.key("outboxes"), 0, outboxJobs-1)
	if err := errorOf(ctx, index); err != nil {
		return nil, false, fmt.Errorf("read the outboxes: %w", err)
	}
	jobs := slices.DeleteFunc(index.Val(), func(job string) bool { return !IsJobName(job) })
	more = len(jobs) == outboxJobs
	var empty, broken []Posted
	damaged, err := pipelineEach(ctx, h.namespace, jobs, outboxJobs, func(p redis.Pipeliner, job string) *redis.StringSliceCmd {
		return p.ZRange(ctx, h.jobKey(job, "outbox"), 0, outboxRecords-1)
	}, func(job string, found *redis.StringSliceCmd) error {
		more = more || len(found.Val()) == outboxRecords
		if len(found.Val()) == 0 {
			empty = append(empty, Posted{Record: Record{Job: job}})
		}
		var errs []error
		for _, text := range found.Val() {
			one, err := decodePosted(job, text)
			if err != nil {
				broken = append(broken, Posted{Record: Record{Job: job}, text: text})
				errs = append(errs, fmt.Errorf("%s: %w", h.jobKey(job, "outbox"), err))
				continue
			}
			records = append(records, one)
		}
		return errors.Join(errs...)
	})
	if err == nil && len(empty)+len(broken) > 0 {
		err = h.ClearOutbox(ctx, append(empty, broken...))
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the outboxes: %w", err)
	}
	return records, more, wrapIf("read the outboxes", damaged)
}

func decodePosted(job, text string) (Posted, error) {
	var ids postedIDs
	err := json.Unmarshal([]byte(text), &ids)
	if err != nil || !isRunID(ids.RunID) || len(ids.Targets) == 0 || slices.ContainsFunc(ids.Targets, func(name string) bool { return !isName(name) }) {
		return Posted{}, fmt.Errorf("%w: %.40q", ErrCorrupt, text)
	}
	r, err := decodeRecord(job, ids.RunID, text)
	return Posted{r, ids.Targets, text}, err
}

// ClearOutbox removes records from the outboxes, after they were queued for their targets. It also removes the jobs without further records from the index.
func (h *history) ClearOutbox(ctx context.Context, records []Posted) error {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	byJob := map[string][]any{}
	for _, r := range records {
		byJob[r.Job] = append(byJob[r.Job], r.text)
	}
	cmds, err := h.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for job, texts := range byJob {
			p.ZRem(ctx, h.jobKey(job, "outbox"), texts...)
			p.ZRem(ctx, h.key("outboxes"), job)
		}
		return nil
	})
	if err := allErrors(ctx, cmds, err); err != nil {
		return fmt.Errorf("clear the outboxes: %w", err)
	}
	_, err = h.FindOutboxes(ctx, slices.Collect(maps.Keys(byJob))) // a replica may have posted a record just before its job was removed from the index
	return err
}

// FindOutboxes returns the jobs whose outbox has records, and adds them to the index. A replica that dies between the two writes to a Redis Cluster leaves
// such a job behind.
func (h *history) FindOutboxes(ctx context.Context, jobs []string) (found []string, err error) {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	var entries []redis.Z
	damaged, err := pipelineEach(ctx, h.namespace, jobs, maxBatch, func(p redis.Pipeliner, job string) *redis.IntCmd {
		return p.Exists(ctx, h.jobKey(job, "outbox"))
	}, func(job string, exists *redis.IntCmd) error {
		if exists.Val() > 0 {
			found, entries = append(found, job), append(entries, redis.Z{Member: job})
		}
		return nil
	})
	if err := errors.Join(damaged, err); err != nil {
		return nil, fmt.Errorf("look for outboxes: %w", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return found, wrapIf("look for outboxes", errorOf(ctx, h.redis.ZAddNX(ctx, h.key("outboxes"), entries...)))
}
