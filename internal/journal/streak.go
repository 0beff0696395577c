package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// Failures returns the outcomes of what went wrong. The others but ok neither begin nor end a streak of failures.
func Failures() []string {
	return []string{OutcomeFailed, OutcomeTimeout, OutcomeLost, OutcomeAbandoned, OutcomeMissed}
}

// Failed reports whether the record is a failure, and not a try that another one has followed.
func (r Record) Failed() bool { return !r.Retried && slices.Contains(Failures(), r.Outcome) }

// Streak is the failures of a job since it was last ok. The history may have removed their records.
type Streak struct {
	// Since is the end of the first failure; zero for none.
	Since time.Time
	// Count is the number of failures in a row.
	Count int
	// LastOK is the end of the newest run that was ok; zero if none is known.
	LastOK time.Time
}

// The key of a streak is a sorted set, so that a MULTI can keep it without a decision: its members are the RunIDs of failures by their end, one member for
// the last ok, and maybe one that stands for older failures, with the end of the first of these. No RunID has a "|".
const (
	memberOK     = "|ok"
	memberFolded = "|+" // and their number
	// unfolded is the number of failures that have a member each. Twice as many are folded. Up to 128 short members Redis keeps a set in its compact form.
	unfolded = 60
	// mostFolded is beyond any number of failures.
	mostFolded = 1 << 40
)

// queueStreak notes what a word means for the streak of its job.
func (h *history) queueStreak(ctx context.Context, p redis.Pipeliner, w *jobWrite, r word) {
	key, at := h.jobKey(w.job, "streak"), float64(r.moment().UnixMicro())
	switch {
	case r.weight() == weightRunning || r.Retried:
		return
	case r.Failed():
		// LT: another report of the failure, with a later time, changes nothing.
		p.ZAddLT(ctx, key, redis.Z{Score: at, Member: r.RunID})
		w.failures = p.ZCard(ctx, key)
		if r.weight() == weightAbandoned {
			w.doubtful = append(w.doubtful, doubtful{r.RunID, p.HGet(ctx, h.jobKey(w.job, "records"), field(weightEnd, r.RunID))})
		}
	default:
		p.ZRem(ctx, key, r.RunID) // it was abandoned, as far as others knew
		if r.Outcome == OutcomeOK {
			p.ZRemRangeByScore(ctx, key, "-inf", number(r.moment().UnixMicro()))
			p.ZAddGT(ctx, key, redis.Z{Score: at, Member: memberOK})
		}
	}
}

// doubtful is a run that was reported as abandoned, and the end that its holder may have reported before.
type doubtful struct {
	id  string
	end *redis.StringCmd
}

// settleStreaks takes those runs out of the streaks that were called abandoned after they had ended well, and folds long streaks. After an error the
// caller repeats its write, and so this.
func (h *history) settleStreaks(ctx context.Context, jobs []*jobWrite) error {
	var errs multierr.List
	for _, w := range jobs {
		for _, d := range w.doubtful {
			if r, err := decode(w.job, d.id, d.end.Val()); err == nil && !r.Failed() {
				errs.Add(errorOf(ctx, h.redis.ZRem(ctx, h.jobKey(w.job, "streak"), d.id)))
			}
		}
		if w.failures != nil && w.failures.Val() > 2*unfolded {
			errs.Add(h.fold(ctx, h.jobKey(w.job, "streak")))
		}
	}
	return errs.Err()
}

// fold puts one member in the place of all but the newest failures of a streak. If the streak changes meanwhile, another write folds it.
func (h *history) fold(ctx context.Context, key string) error {
	err := h.redis.Watch(ctx, func(tx *redis.Tx) error {
		all, err := tx.ZRangeWithScores(ctx, key, 0, -1).Result()
		if err != nil {
			return err //nolint:wrapcheck // it is below
		}
		failures := all[1+slices.IndexFunc(all, func(z redis.Z) bool { return z.Member == memberOK }):] // those before were reported after the ok
		if len(failures) <= unfolded {
			return nil
		}
		old, count, members := failures[:len(failures)-unfolded], 0, []any{}
		for _, z := range old {
			count += failuresIn(z.Member)
			members = append(members, z.Member)
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.ZRem(ctx, key, members...)
			p.ZAdd(ctx, key, redis.Z{Score: old[0].Score, Member: memberFolded + strconv.Itoa(count)})
			return nil
		})
		return err //nolint:wrapcheck // it is below
	}, key)
	if errors.Is(err, redis.TxFailedErr) {
		return nil
	}
	return wrapIf("shorten the streak "+key, err)
}

// failuresIn returns the number of failures that a member stands for.
func failuresIn(member any) int {
	text, _ := member.(string) // as each reply has it
	count, folded := strings.CutPrefix(text, memberFolded)
	if !folded {
		return 1
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > mostFolded { // which no replica writes
		return 1
	}
	return n
}

// Streaks returns the streaks of jobs. Jobs without a failure since their last ok have a Count of 0, jobs that are unknown too. Errors are as with Runs.
func (h *history) Streaks(ctx context.Context, jobs []string) (map[string]Streak, error) {
	ctx, cancel := h.within(ctx)
	defer cancel()
	streaks := make(map[string]Streak, len(jobs))
	lastOK, err := each(ctx, h.namespace, jobs, maxBatch, func(p redis.Pipeliner, job string) *redis.FloatCmd {
		return p.ZScore(ctx, h.jobKey(job, "streak"), memberOK)
	}, func(job string, ok *redis.FloatCmd) error {
		var s Streak
		if ok.Err() == nil && scored(ok.Val()) {
			s.LastOK = scoreMoment(ok.Val()).UTC()
		}
		streaks[job] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the streaks of failures: %w", err)
	}
	counts := make(map[string]*redis.IntCmd, len(jobs))
	failures, err := each(ctx, h.namespace, jobs, maxBatch, func(p redis.Pipeliner, job string) *redis.ZSliceCmd {
		after := redis.ZRangeBy{Min: "-inf", Max: "+inf", Count: 1}
		if ok := streaks[job].LastOK; !ok.IsZero() {
			after.Min = "(" + number(ok.UnixMicro())
		}
		counts[job] = p.ZCount(ctx, h.jobKey(job, "streak"), after.Min, after.Max)
		return p.ZRangeByScoreWithScores(ctx, h.jobKey(job, "streak"), &after)
	}, func(job string, first *redis.ZSliceCmd) error {
		if s := streaks[job]; len(first.Val()) > 0 && scored(first.Val()[0].Score) {
			s.Since = scoreMoment(first.Val()[0].Score).UTC()
			s.Count = int(counts[job].Val()) - 1 + failuresIn(first.Val()[0].Member)
			streaks[job] = s
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the streaks of failures: %w", err)
	}
	return streaks, wrapIf("read the streaks of failures", multierr.Join(lastOK, failures))
}
