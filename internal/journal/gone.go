package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// ForgetJobs removes the descriptions of jobs that no replica has described since the time before, and entries that no replica wrote. It returns their names.
// The leader calls it. If a replica describes a job at the same time, ForgetJobs removes nothing. The records of the runs stay until they expire. GoneJobs
// returns the names of the removed jobs.
func (d descriptions) ForgetJobs(ctx context.Context, before time.Time) ([]string, error) {
	ctx, cancel := d.withTimeout(ctx)
	defer cancel()
	var gone []string
	err := d.redis.Watch(ctx, func(tx *redis.Tx) error {
		all, err := tx.HGetAll(ctx, d.key("jobs")).Result()
		if err != nil {
			return err
		}
		var lastSeen []redis.Z
		if gone, lastSeen = notSeenSince(all, before); len(gone) == 0 {
			return nil
		}
		if len(lastSeen) > 0 { // before the removal, so that no name is lost; GoneJobs drops a job that is described again at the same time
			if err := d.redis.ZAdd(ctx, d.key("gone"), lastSeen...).Err(); err != nil {
				return err
			}
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			return p.HDel(ctx, d.key("jobs"), gone...).Err()
		})
		return err
	}, d.key("jobs"))
	switch {
	case errors.Is(err, redis.TxFailedErr):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("remove the keys of removed jobs: %w", errors.Join(err, context.Cause(ctx)))
	}
	return gone, nil
}

// notSeenSince returns the names of the entries that are older than t or that no replica wrote, in order. lastSeen has the times of the last description of
// those that a replica wrote.
func notSeenSince(all map[string]string, t time.Time) (names []string, lastSeen []redis.Z) {
	for name, text := range all {
		var info JobInfo
		foreign := decodeEntry(text, &info, &info.Name, name) != nil || !isName(name)
		if !foreign && !info.Seen.Before(t) {
			continue
		}
		names = append(names, name)
		if !foreign {
			lastSeen = append(lastSeen, redis.Z{Score: float64(info.Seen.UnixMilli()), Member: name})
		}
	}
	slices.Sort(names)
	return names, lastSeen
}

// GoneJobs returns the jobs that ForgetJobs has removed, with the time of their last description. They stay listed until DropGone, because Redis may still have
// data of them. GoneJobs leaves out jobs that a replica has described since.
func (d descriptions) GoneJobs(ctx context.Context) (map[string]time.Time, error) {
	ctx, cancel := d.withTimeout(ctx)
	defer cancel()
	all := d.redis.ZRangeWithScores(ctx, d.key("gone"), 0, mostListed-1)
	if err := errorOf(ctx, all); err != nil {
		return nil, fmt.Errorf("list the jobs that are gone: %w", err)
	}
	gone, back := map[string]time.Time{}, []string{}
	damaged, err := pipelineEach(ctx, d.namespace, all.Val(), maxBatch, func(p redis.Pipeliner, z redis.Z) *redis.BoolCmd {
		name, _ := z.Member.(string)
		return p.HExists(ctx, d.key("jobs"), name)
	}, func(z redis.Z, described *redis.BoolCmd) error {
		name, _ := z.Member.(string)
		if described.Val() || !isName(name) || !isScore(z.Score) {
			back = append(back, name)
		} else {
			gone[name] = time.UnixMilli(int64(z.Score))
		}
		return nil
	})
	if err = multierr.Join(err, damaged); err != nil {
		return nil, fmt.Errorf("list the jobs that are gone: %w", err)
	}
	return gone, d.DropGone(ctx, back...)
}

// DropGone removes jobs from the list of GoneJobs. Call it for jobs that have no more data in Redis that could matter.
func (d descriptions) DropGone(ctx context.Context, jobs ...string) error {
	ctx, cancel := d.withTimeout(ctx)
	defer cancel()
	if len(jobs) == 0 {
		return nil
	}
	members := make([]any, len(jobs))
	for i, name := range jobs {
		members[i] = name
	}
	cmd := d.redis.ZRem(ctx, d.key("gone"), members...)
	return wrapIf("drop jobs that are gone", errorOf(ctx, cmd))
}
