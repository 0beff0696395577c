package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

type descriptions struct{ *namespace }

// A JobInfo describes a job for readers that do not have its configuration.
type JobInfo struct {
	// Name is the name of the job, or of an instance. Of and On are the parts of the name of an instance: see [InstanceOf]. Otherwise they are "".
	Name string `json:"name"`
	Of   string `json:"-"`
	On   string `json:"-"`
	// Everywhere is true for a job with per_tick = "all" without instances. No replica runs it.
	Everywhere bool `json:"everywhere,omitempty"`
	// Schedule lists the cron expressions. Timezone is the IANA name of the zone.
	Schedule []string `json:"schedule"`
	Timezone string   `json:"timezone"`
	// After names the parents of the job. A job with parents has no schedule.
	After []string `json:"after,omitempty"`
	// Except and ExceptDates exclude ticks. StartsAt and ExpiresAt are the bounds of the ticks. Older replicas omit these fields. Of the past days, ExceptDates
	// has at most the last 400, and none older than the history.
	Except      []string  `json:"except,omitempty"`
	ExceptDates []string  `json:"except_dates,omitempty"`
	StartsAt    time.Time `json:"starts_at,omitzero"`
	ExpiresAt   time.Time `json:"expires_at,omitzero"`
	// Parallel is the number of slots, PerTick the number of slots for one tick.
	Parallel int `json:"parallel"`
	PerTick  int `json:"per_tick"`
	// Digest is a hash that differs between configurations of the job.
	Digest string `json:"digest"`
	// Enabled is false if the job is configured but has no ticks.
	Enabled bool `json:"enabled"`
	// Where has the labels that a replica needs to run the job. It is nil if the job needs none, and in entries of older versions.
	Where map[string]string `json:"where,omitempty"`
	// Tags select jobs that are paused with one command. Older replicas omit them.
	Tags []string `json:"tags,omitempty"`
	// Pool is the pool in which each run needs a slot; "" if there is none. PoolSlots is the number of slots of the pool.
	Pool      string `json:"pool,omitempty"`
	PoolSlots int    `json:"pool_slots,omitempty"`
	// JitterMS is the maximum delay of a tick by its jitter, in milliseconds.
	JitterMS int64 `json:"jitter_ms,omitempty"`
	// WarnAfterMS and StaleAfterMS are warn_after and stale_after in milliseconds, and ExpectBy is expect_by, such as "06:30"; 0 and "" if they are not set.
	WarnAfterMS  int64  `json:"warn_after_ms,omitempty"`
	StaleAfterMS int64  `json:"stale_after_ms,omitempty"`
	ExpectBy     string `json:"expect_by,omitempty"`
	// Since is the time since which replicas have described the job with these ticks, by their estimate of the clock of Redis. It is zero if a replica of an
	// older version has described the job so.
	Since time.Time `json:"since,omitzero"`
	// Seen is the time at which a replica last described the job, by its estimate of the clock of Redis.
	Seen time.Time `json:"seen"`
}

func (i *JobInfo) findFault() string {
	switch {
	case !IsJobName(i.Name):
		return fmt.Sprintf("the name %.40q", i.Name)
	case !isSound(i.Seen) || !isSound(i.Since) || !isSound(i.StartsAt) || !isSound(i.ExpiresAt):
		return "a time beyond the calendar"
	case i.Parallel < 0 || i.Parallel > mostSlots || i.PerTick < 0 || i.PerTick > mostSlots:
		return fmt.Sprintf("parallel %d, per_tick %d", i.Parallel, i.PerTick)
	case i.JitterMS < 0 || i.JitterMS > longestRun.Milliseconds():
		return fmt.Sprintf("a jitter of %d ms", i.JitterMS)
	case i.WarnAfterMS < 0 || i.WarnAfterMS > longestRun.Milliseconds() || i.StaleAfterMS < 0 || i.StaleAfterMS > longestRun.Milliseconds() || len(i.ExpectBy) > 5:
		return fmt.Sprintf("warn_after %d, stale_after %d, expect_by %.40q", i.WarnAfterMS, i.StaleAfterMS, i.ExpectBy)
	case i.Pool != "" && !isName(i.Pool) || i.PoolSlots < 0 || i.PoolSlots > mostSlots:
		return fmt.Sprintf("pool %.40q of %d", i.Pool, i.PoolSlots)
	}
	return ""
}

// DescribeJobs writes the descriptions of a replica's jobs. If replicas disagree, the last write counts. A replica calls it when it starts or reloads, and
// periodically with a new Seen, so that ForgetJobs finds the jobs that no replica has any more.
func (d descriptions) DescribeJobs(ctx context.Context, jobs []JobInfo) error {
	ctx, cancel := d.withTimeout(ctx)
	defer cancel()
	for part := range slices.Chunk(jobs, maxBatch) {
		var pairs []any
		for _, info := range part {
			if !IsJobName(info.Name) || info.Seen.IsZero() {
				return fmt.Errorf("describe jobs: %w: name %.40q, seen %v", ErrInvalid, info.Name, info.Seen)
			}
			info.Seen, info.Since = info.Seen.UTC(), info.Since.UTC()
			text, err := json.Marshal(info)
			if err != nil {
				return fmt.Errorf("describe job %s: %w: %w", info.Name, ErrInvalid, err)
			}
			pairs = append(pairs, info.Name, text)
		}
		cmd := d.redis.HSet(ctx, d.key("jobs"), pairs...)
		if err := errorOf(ctx, cmd); err != nil {
			return fmt.Errorf("describe jobs: %w", err)
		}
	}
	return nil
}

// Jobs returns the descriptions of all jobs, by name. Entries that no replica wrote are left out, with an error that wraps ErrCorrupt. A job with Everywhere
// that has instances is left out, too: its description is from before them.
func (d descriptions) Jobs(ctx context.Context) ([]JobInfo, error) {
	ctx, cancel := d.withTimeout(ctx)
	defer cancel()
	cmd := d.redis.HGetAll(ctx, d.key("jobs"))
	if err := errorOf(ctx, cmd); err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	var damaged multierr.List
	jobs, placed := make([]JobInfo, 0, len(cmd.Val())), map[string]bool{}
	for name, text := range cmd.Val() {
		var info JobInfo
		if err := decodeEntry(text, &info, &info.Name, name); err != nil {
			damaged.Add(fmt.Errorf("list jobs: job %.40q: %w", name, err))
			continue
		}
		if job, replica := InstanceOf(info.Name); replica != "" {
			info.Of, info.On, placed[job] = job, replica, true
		}
		jobs = append(jobs, info)
	}
	jobs = slices.DeleteFunc(jobs, func(info JobInfo) bool { return info.Everywhere && placed[info.Name] })
	slices.SortFunc(jobs, func(a, b JobInfo) int { return cmp.Compare(a.Name, b.Name) })
	return jobs, damaged.Err()
}

// ForgetJobs removes the descriptions that no replica has written since the time before, and entries that no replica wrote. It returns the names of the removed
// entries. The leader calls it. If a replica describes a job at the same time, ForgetJobs removes nothing. GoneJobs lists the removed jobs. Their history is
// kept until it expires.
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
		if len(lastSeen) > 0 { // before the removal below, so that no name gets lost; if a replica describes the job again, GoneJobs drops the name
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

// notSeenSince returns the sorted names of the entries that are older than t or that no replica wrote. lastSeen has the time of the last description of each
// returned job, without the entries that no replica wrote.
func notSeenSince(all map[string]string, t time.Time) (names []string, lastSeen []redis.Z) {
	for name, text := range all {
		var info JobInfo
		foreign := decodeEntry(text, &info, &info.Name, name) != nil || !IsJobName(name)
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

// GoneJobs returns the jobs that ForgetJobs has removed, with the time of their last description. A job stays listed until DropGone, because Redis may still
// have orphaned runs and a lock of the job. GoneJobs leaves out jobs that a replica has described since.
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
		if described.Val() || !IsJobName(name) || !isScore(z.Score) {
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

// DropGone removes jobs from the list of GoneJobs. The leader calls it when it has removed the locks of these jobs. On a quorum, which never removes locks, the
// leader calls it at the time at which it would have removed them.
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
