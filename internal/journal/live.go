package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

const (
	// LiveChunks is the number of newest chunks that Redis keeps per run.
	LiveChunks = 64
	// keepLive is the time for which Redis keeps the chunks of a run after the last one.
	keepLive = time.Minute
	// keepFollower is the time for which replicas publish output after a call of Follow.
	keepFollower = 10 * time.Second
)

type liveOutput struct{ *namespace }

// A Chunk is a part of the output of an attempt, published for followers. Chunks may overlap, because a replica publishes output again if Redis may have lost
// it, and for followers that come later.
type Chunk struct {
	Attempt int `json:"try,omitempty"`
	// Offset is the number of bytes that the attempt printed before the chunk.
	Offset int64 `json:"at,omitempty"`
	// Lines are in the order in which they were read. A chunk without lines shows followers that a replica has noticed them, or ends the attempt.
	Lines []Line `json:"lines,omitempty"`
	// End is set on the last chunk of the attempt.
	End bool `json:"end,omitempty"`
}

// Next returns the offset at which the next chunk begins.
func (c Chunk) Next() int64 {
	next := c.Offset
	for _, line := range c.Lines {
		next += line.Size()
	}
	return next
}

// A Line is a line of output without its newline.
type Line struct {
	Stderr bool   `json:"err,omitempty"`
	Text   string `json:"text"`
	// At is the time when the line was read, in milliseconds since 1970; 0 in lines of older versions.
	At int64 `json:"at,omitempty"`
}

// Size returns the number of bytes of the line, with its newline.
func (l Line) Size() int64 { return int64(len(l.Text) + 1) }

// Follow asks the replicas to publish the output of a job's runs for keepFollower. Repeat the call within this time as long as a user watches.
func (l liveOutput) Follow(ctx context.Context, job string) error {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	if !IsJobName(job) {
		return fmt.Errorf("follow: %w: job %.40q", ErrInvalid, job)
	}
	cmd := l.redis.Set(ctx, l.jobKey(job, "followed"), "1", keepFollower)
	return wrapIf("follow job "+job, errorOf(ctx, cmd))
}

// AsksToFollow reports whether a Redis command is the one that Follow sends. A read-only connection may permit this command, because it only makes replicas
// publish output.
func AsksToFollow(command string, args []string) bool {
	if command != "SET" || len(args) != 4 || len(args[0]) > longestFollowed || args[1] != "1" || !strings.EqualFold(args[2], "ex") {
		return false
	}
	_, job, _ := strings.Cut(args[0], "{")
	job, ours := strings.CutSuffix(job, "}:followed")
	return ours && strings.HasPrefix(args[0], "cronclave:") && IsJobName(job) && args[3] == formatNumber(int64(keepFollower/time.Second))
}

// longestFollowed is an upper limit for the length of the key that Follow writes, in bytes, for any namespace and job.
const longestFollowed = 1000

// Followed returns the given jobs that have a follower.
func (l liveOutput) Followed(ctx context.Context, jobs []string) ([]string, error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	var followed []string
	damaged, err := pipelineEach(ctx, l.namespace, jobs, maxBatch, func(p redis.Pipeliner, job string) *redis.IntCmd {
		return p.Exists(ctx, l.jobKey(job, "followed"))
	}, func(job string, followers *redis.IntCmd) error {
		if followers.Val() > 0 {
			followed = append(followed, job)
		}
		return nil
	})
	if err = multierr.Join(err, damaged); err != nil {
		return nil, fmt.Errorf("read the followers: %w", err)
	}
	return followed, nil
}

func (l liveOutput) liveKey(job, run string) string { return l.jobKey(job, "live:"+run) }

// Publish adds a chunk to the output of a run. first is true if Redis had no earlier chunk of the run: either this chunk is the first, or Redis has lost the
// earlier chunks, or they have expired. Redis keeps the newest LiveChunks chunks for keepLive.
func (l liveOutput) Publish(ctx context.Context, job, run string, c Chunk) (first bool, err error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	if !IsJobName(job) || !isRunID(run) {
		return false, fmt.Errorf("publish output: %w: job %.40q, run %.40q", ErrInvalid, job, run)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return false, fmt.Errorf("publish output of run %s: %w: %w", run, ErrInvalid, err)
	}
	var before *redis.IntCmd
	cmds, err := l.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		before = p.Exists(ctx, l.liveKey(job, run)) // not XLEN: the Redis user in docs/access.md may not call it
		p.XAdd(ctx, &redis.XAddArgs{Stream: l.liveKey(job, run), MaxLen: LiveChunks, Values: []any{"chunk", text}})
		return p.PExpire(ctx, l.liveKey(job, run), keepLive).Err()
	})
	return before.Val() == 0, wrapIf("publish output of run "+run, allErrors(ctx, cmds, err))
}

// A LiveRun identifies a run whose output is published.
type LiveRun struct{ Job, ID string }

// KeepLive extends the time to live of the output of runs, and returns the runs that have no output in Redis.
func (l liveOutput) KeepLive(ctx context.Context, runs []LiveRun) (missing []LiveRun, err error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	damaged, err := pipelineEach(ctx, l.namespace, runs, maxBatch, func(p redis.Pipeliner, r LiveRun) *redis.BoolCmd {
		return p.PExpire(ctx, l.liveKey(r.Job, r.ID), keepLive)
	}, func(r LiveRun, kept *redis.BoolCmd) error {
		if !kept.Val() {
			missing = append(missing, r)
		}
		return nil
	})
	if err = multierr.Join(err, damaged); err != nil {
		return nil, fmt.Errorf("keep the output of runs: %w", err)
	}
	return missing, nil
}

// Live returns the chunks of a run that Redis keeps. To get only new chunks, pass the place that the previous call returned as after; "" means all chunks.
// Chunks are sorted by attempt and offset. A later call can return output that an earlier call has returned, because replicas publish output again.
func (l liveOutput) Live(ctx context.Context, job, run, after string) (chunks []Chunk, place string, err error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	from := "-"
	if after != "" {
		from = after
	}
	cmd := l.redis.XRange(ctx, l.liveKey(job, run), from, "+")
	if err := errorOf(ctx, cmd); err != nil && !errors.Is(err, redis.Nil) {
		return nil, after, fmt.Errorf("read output of run %s: %w", run, err)
	}
	messages := slices.DeleteFunc(cmd.Val(), func(m redis.XMessage) bool { return m.ID == after }) // XRANGE includes the chunk at after; excluding it with "(" needs Redis 6.2
	for _, m := range messages {
		after = m.ID
		text, _ := m.Values["chunk"].(string)
		var c Chunk
		if json.Unmarshal([]byte(text), &c) == nil {
			chunks = append(chunks, c)
		}
	}
	slices.SortStableFunc(chunks, func(a, b Chunk) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Offset, b.Offset))
	})
	return chunks, after, nil
}
