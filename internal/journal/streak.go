package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A Streak describes the failures of a job since its last success. Their records may have been removed from the history.
type Streak struct {
	// Since is the end of the first failure; zero if there is none.
	Since time.Time
	// Count is the number of failures in a row.
	Count int
	// AtLeast is set if Count is a lower bound and Since may be too late. Of older failures, Redis has only their number and the times of the first and the
	// newest. If a success is reported late and lies between these two times, the number of failures after the success is unknown.
	AtLeast bool
	// LastOK is the end of the newest successful run; zero if none is known.
	LastOK time.Time
	// First is the end of the first run or tick since the last success, whether it failed, was canceled or was skipped; zero if there is none.
	First time.Time
	// Paused is the newest tick that a pause skipped; zero if none is known.
	Paused time.Time
}

// The key of a streak is a sorted set, so that a MULTI can update it without reading it first. Its members are the RunIDs of failures by their end, and one
// member each for the last success, the first canceled run or skipped tick since then, and the newest tick that a pause skipped. The last of these has
// runningScore added to its score, so that a success does not remove it. Two further members may replace the older failures: one has the number of these failures
// and the end of the first, the other has the newest. The names of all members other than RunIDs begin with "|" or a space, which no RunID contains.
const (
	memberOK      = "|ok"
	memberOther   = "|other"
	memberPaused  = "|paused"
	memberFolded  = " |+" // followed by a number
	memberAtLeast = " |>" // replaces memberFolded if the number is only a lower bound
	memberNewest  = " |=" // followed by a RunID
	// unfolded is the number of newest failures that keep their own members when a set is folded. A set is folded at more than 2 x unfolded members, to keep it
	// below 128 members, up to which Redis stores it compactly (zset-max-listpack-entries).
	unfolded = 60
	// mostFolded is above any possible number of failures.
	mostFolded = 1 << 40
)

// A streakSet is the parsed content of a streak's key.
type streakSet struct {
	lastOK *redis.Z // nil if none is known
	other  *redis.Z // the first canceled run or skipped tick; nil if there is none
	paused *redis.Z // the newest tick that a pause skipped; nil if there is none
	first  float64  // the end of the first failure
	folded int      // number of older failures that two members replace
	more   bool     // folded is a lower bound
	newest redis.Z
	others []redis.Z // failures later than newest, the newest folded failure
}

// parseStreak parses the members of a streak's key. It modifies all. It ignores failures before the last success, which were reported late. It also ignores a
// failure that is not newer than the folded failures, because it is one of them or was reported very late.
func parseStreak(all []redis.Z) (s streakSet) {
	if all, s.lastOK = takeMember(all, memberOK); s.lastOK != nil {
		all = slices.DeleteFunc(all, func(z redis.Z) bool { return z.Score <= s.lastOK.Score })
	}
	all, s.other = takeMember(all, memberOther)
	all, s.paused = takeMember(all, memberPaused)
	all = slices.DeleteFunc(all, func(z redis.Z) bool {
		count, folded := strings.CutPrefix(memberOf(z), memberFolded)
		if !folded {
			count, folded = strings.CutPrefix(memberOf(z), memberAtLeast)
			s.more = s.more || folded
		}
		id, newest := strings.CutPrefix(memberOf(z), memberNewest)
		switch n, err := strconv.Atoi(count); {
		case folded && err == nil && n > 0 && n <= mostFolded:
			s.folded, s.first = s.folded+n, cmp.Or(s.first, z.Score)
		case newest:
			s.newest = redis.Z{Score: z.Score, Member: id}
		}
		return folded || newest
	})
	if s.folded == 0 && s.newest.Member != nil { // the last success lies between the folded failures, so at least the newest of them came after it
		s.folded, s.first, s.more = 1, s.newest.Score, true
	}
	s.others = slices.DeleteFunc(all, func(z redis.Z) bool {
		return cmp.Or(cmp.Compare(z.Score, s.newest.Score), strings.Compare(memberOf(z), memberOf(s.newest))) <= 0
	})
	if s.folded == 0 && len(s.others) > 0 {
		s.first = s.others[0].Score
	}
	return s
}

// takeMember removes a member from all, and returns it; nil if it is not there.
func takeMember(all []redis.Z, name string) (rest []redis.Z, taken *redis.Z) {
	i := slices.IndexFunc(all, func(z redis.Z) bool { return z.Member == name })
	if i < 0 {
		return all, nil
	}
	z := all[i]
	return slices.Delete(all, i, i+1), &z
}

// foldOldest returns the members of the folded set. As many of the newest failures as unfolded keep their own members, and two members replace the rest.
func (s streakSet) foldOldest() (members []redis.Z) {
	if n := len(s.others) - unfolded; n > 0 {
		s.newest, s.folded, s.others = s.others[n-1], s.folded+n, s.others[n:]
	}
	if s.folded > 0 {
		count := memberFolded
		if s.more {
			count = memberAtLeast
		}
		members = append(members, redis.Z{Score: s.first, Member: count + strconv.Itoa(s.folded)},
			redis.Z{Score: s.newest.Score, Member: memberNewest + memberOf(s.newest)})
	}
	for _, z := range []*redis.Z{s.lastOK, s.other, s.paused} {
		if z != nil {
			members = append(members, *z)
		}
	}
	return append(members, s.others...)
}

func memberOf(z redis.Z) string {
	text, _ := z.Member.(string) // always a string in a reply
	return text
}

func (h *history) queueStreak(ctx context.Context, p redis.Pipeliner, w *jobWrite, r encodedRecord) {
	key, at := h.jobKey(w.job, "streak"), float64(momentOf(&r.Record).UnixMicro())
	switch {
	case weightOf(&r.Record) == weightRunning || r.Retried:
		return
	case r.Failed():
		// LT: a second report of the same failure, with a later time, changes nothing.
		p.ZAddLT(ctx, key, redis.Z{Score: at, Member: r.RunID})
		w.failures = p.ZCard(ctx, key)
		if weightOf(&r.Record) == weightAbandoned {
			w.doubtful = append(w.doubtful, doubtful{r.RunID, p.HGet(ctx, h.jobKey(w.job, "records"), fieldName(weightEnd, r.RunID))})
		}
	case r.Outcome == OutcomeOK:
		p.ZRem(ctx, key, r.RunID) // another replica may have recorded the run as abandoned
		p.ZRemRangeByScore(ctx, key, "-inf", formatNumber(momentOf(&r.Record).UnixMicro()))
		p.ZAddGT(ctx, key, redis.Z{Score: at, Member: memberOK})
		if took := h.jobKey(w.job, "took"); r.DurationMS != nil {
			p.ZAdd(ctx, took, redis.Z{Score: at, Member: fmt.Sprintf("%.0f|%d", at, *r.DurationMS)})
			p.ZRemRangeByRank(ctx, took, 0, -1-keptDurations)
			p.PExpire(ctx, took, h.factsAge)
		}
	default:
		p.ZRem(ctx, key, r.RunID) // as above
		p.ZAddLT(ctx, key, redis.Z{Score: at, Member: memberOther})
		if r.Reason == run.ReasonPaused {
			p.ZAddGT(ctx, key, redis.Z{Score: float64(lastTickOf(&r.Record).UnixMicro() + runningScore), Member: memberPaused})
		}
	}
}

// lastTickOf returns the tick of a record. A record of several ticks has only the first one, so lastTickOf returns the time at which they were settled.
func lastTickOf(r *Record) time.Time {
	if r.Ticks > 1 || r.Tick.IsZero() {
		return momentOf(r)
	}
	return r.Tick
}

// A doubtful run was reported as abandoned. end is the record that the run's holder may have written before.
type doubtful struct {
	id  string
	end *redis.StringCmd
}

// settleStreaks removes a run that was just reported as abandoned from the streak if the holder of the run had already recorded an outcome that is no failure.
// It also folds long streaks. After an error the caller repeats its write, and settleStreaks with it.
func (h *history) settleStreaks(ctx context.Context, jobs []*jobWrite) error {
	var errs multierr.List
	for _, w := range jobs {
		for _, d := range w.doubtful {
			if r, err := decodeRecord(w.job, d.id, d.end.Val()); err == nil && !r.Failed() {
				errs.Add(errorOf(ctx, h.redis.ZRem(ctx, h.jobKey(w.job, "streak"), d.id)))
			}
		}
		if w.failures != nil && w.failures.Val() > 2*unfolded {
			errs.Add(h.foldStreak(ctx, h.jobKey(w.job, "streak")))
		}
	}
	return errs.Err()
}

// foldStreak shortens the sorted set of a streak. If another client changes the set in the meantime, foldStreak does nothing, and a later write folds the set.
func (h *history) foldStreak(ctx context.Context, key string) error {
	err := h.redis.Watch(ctx, func(tx *redis.Tx) error {
		all, err := tx.ZRangeWithScores(ctx, key, 0, -1).Result()
		if err != nil || len(all) == 0 {
			return err //nolint:wrapcheck // wrapped below
		}
		s := parseStreak(all)
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Del(ctx, key) // the key is written anew, because Redis never converts a set back to the compact form
			p.ZAdd(ctx, key, s.foldOldest()...)
			p.PExpire(ctx, key, h.factsAge)
			return nil
		})
		return err //nolint:wrapcheck // wrapped below
	}, key)
	if errors.Is(err, redis.TxFailedErr) {
		return nil
	}
	return wrapIf("shorten the streak "+key, err)
}

const streaksAtOnce = 64

// Streaks returns the streaks of jobs. Jobs without a failure since their last success, and unknown jobs, have a Count of 0. It returns errors like Runs.
func (h *history) Streaks(ctx context.Context, jobs []string) (map[string]Streak, error) {
	ctx, cancel := h.withTimeout(ctx)
	defer cancel()
	streaks := make(map[string]Streak, len(jobs))
	damaged, err := pipelineEach(ctx, h.namespace, jobs, streaksAtOnce, func(p redis.Pipeliner, job string) *redis.ZSliceCmd {
		return p.ZRangeWithScores(ctx, h.jobKey(job, "streak"), 0, -1)
	}, func(job string, all *redis.ZSliceCmd) error {
		set := parseStreak(all.Val())
		s := Streak{Count: set.folded + len(set.others), AtLeast: set.more}
		if s.Count > 0 && isScore(set.first) {
			s.Since = scoreMoment(set.first).UTC()
		}
		s.LastOK, s.First, s.Paused = memberMoment(set.lastOK), memberMoment(set.other), memberMoment(set.paused)
		if s.First.IsZero() || !s.Since.IsZero() && s.Since.Before(s.First) {
			s.First = s.Since
		}
		streaks[job] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the streaks of failures: %w", err)
	}
	return streaks, wrapIf("read the streaks of failures", damaged)
}

// memberMoment returns the time of a member; zero if there is no member, or if no replica would have written its score.
func memberMoment(z *redis.Z) (t time.Time) {
	if z == nil || !isScore(z.Score) {
		return t
	}
	return scoreMoment(z.Score).UTC()
}
