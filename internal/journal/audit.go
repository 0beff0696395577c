package journal

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The limits of the audit log. They keep one user from pushing the acts of others out of it.
const (
	// Redis keeps the newest MaxActs acts for keepActs, and all other acts for keepMore.
	MaxActs  = 1000
	keepActs = 90 * 24 * time.Hour
	keepMore = 7 * 24 * time.Hour
	// hardMaxActs is the maximum length of the log. Beyond it, the oldest acts are removed, even if they are younger than keepMore. One user can
	// add twice ActsADay entries a day, which is less than the maximum on the eight days that keepMore touches.
	hardMaxActs = 33_000
	// ActsAMinute and ActsADay are the limits of acts per user. Cancels and pauses are counted separately and never refused: see [auditLog.countStop].
	ActsAMinute, ActsADay = 120, 2000
	// maxActJobs is the maximum number of jobs that an act names.
	maxActJobs = 20
)

// The kinds of acts.
const (
	ActTrigger = "trigger"
	ActCancel  = "cancel"
	ActPause   = "pause"
	ActResume  = "resume"
	ActExec    = "exec"
	ActForget  = "forget"
)

// ErrTooManyActs means that a user has requested more acts than allowed.
var ErrTooManyActs = errors.New("too many acts of one user")

type auditLog struct{ *namespace }

// An Act is a change that a user requests, such as a pause. Users read its JSON, so the fields must stay compatible.
type Act struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"` // by the clock of Redis
	By   string    `json:"by"`   // name of the user
	Kind string    `json:"act"`
	// Jobs names the first 20 jobs that the act concerns. JobCount is the number of all of them.
	Jobs     []string   `json:"jobs"`
	JobCount int        `json:"job_count"`
	RunID    string     `json:"run_id,omitempty"`  // the run to cancel, if the act concerns a single run
	Replica  string     `json:"replica,omitempty"` // the lost replica to forget
	Tick     *time.Time `json:"tick,omitempty"`    // the tick to run again
	Until    *time.Time `json:"until,omitempty"`   // the end of a pause that ends by itself
	Reason   string     `json:"reason,omitempty"`
	// Unchanged is 0 if the act changed something. Acts of one user and kind that changed nothing share one entry, and Unchanged is the number of these acts.
	Unchanged int `json:"unchanged,omitempty"`
}

func (a *Act) findFault() string {
	if !isSound(a.Time) || a.Tick != nil && !isSound(*a.Tick) || a.Until != nil && !isSound(*a.Until) {
		return "a time beyond the calendar"
	}
	if a.Replica != "" && !isRunID(a.Replica) {
		return fmt.Sprintf("replica %q", cutText(a.Replica))
	}
	if a.JobCount < len(a.Jobs) || len(a.Jobs) > maxActJobs || slices.ContainsFunc(a.Jobs, func(job string) bool { return !IsJobName(job) }) {
		return fmt.Sprintf("%d jobs", a.JobCount)
	}
	return ""
}

// Audit writes an act to the log, and returns the act with its id, time and number of jobs. Call Audit before the act is carried out. If lasting is positive,
// Until is set to the time of Redis plus lasting. After an error the act must not be carried out, although its entry may be in the log. [ErrTooManyActs] means
// that the user has reached a limit.
func (l auditLog) Audit(ctx context.Context, a Act, lasting time.Duration) (Act, error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	now, err := l.redis.Time(ctx).Result()
	if err != nil {
		return a, fmt.Errorf("write the audit log: %w", errors.Join(err, context.Cause(ctx)))
	}
	a.ID, a.Time, a.By, a.Reason = strings.ToLower(rand.Text()[:16]), now.UTC(), cutText(a.By), cutText(a.Reason)
	if lasting > 0 {
		until := now.UTC().Add(lasting)
		a.Until = &until
	}
	a.JobCount = len(a.Jobs)
	a.Jobs = slices.Clone(a.Jobs[:min(len(a.Jobs), maxActJobs)])
	if fault := a.findFault(); fault != "" {
		return a, fmt.Errorf("write the audit log: %w: %s", ErrInvalid, fault)
	}
	text, err := json.Marshal(a)
	if err != nil {
		return a, fmt.Errorf("write the audit log: %w: %w", ErrInvalid, err)
	}
	if a.Kind == ActCancel || a.Kind == ActPause {
		err = l.countStop(ctx, a.By, string(text), now)
	} else {
		err = l.countAct(ctx, a.By, now)
	}
	if err != nil {
		return a, err
	}
	return a, wrapIf("write the audit log", l.addEntry(ctx, string(text), now))
}

// countStop counts a cancel or a pause. It never refuses one, because the user may need it in an emergency. If a user cancels and pauses more than ActsADay
// times a day, the log keeps only the newest of the further acts. Otherwise, one user could push the entries of others out of the log.
func (l auditLog) countStop(ctx context.Context, user, text string, now time.Time) error {
	day, newest := l.key("acts:"+now.UTC().Format(time.DateOnly)), "newest stop of "+user
	var stops *redis.IntCmd
	var before *redis.StringCmd
	cmds, err := l.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		stops = p.HIncrBy(ctx, day, "stops of "+user, 1)
		before = p.HGet(ctx, day, newest)
		p.PExpire(ctx, day, 25*time.Hour)
		return nil
	})
	if err := allErrors(ctx, cmds, err); err != nil {
		return fmt.Errorf("count the acts of a user: %w", err)
	}
	if stops.Val() <= ActsADay {
		return nil
	}
	cmds, err = l.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZRem(ctx, l.key("audit"), before.Val())
		p.HSet(ctx, day, newest, text)
		return nil
	})
	return wrapIf("make room in the audit log", allErrors(ctx, cmds, err))
}

func (l auditLog) countAct(ctx context.Context, user string, now time.Time) error {
	day := now.UTC().Format(time.DateOnly)
	windows := []struct {
		key     string
		lasting time.Duration
		most    int64
		words   string
	}{
		{l.key("acts:" + now.UTC().Format("2006-01-02T15:04")), 2 * time.Minute, ActsAMinute, "a minute"},
		{l.key("acts:" + day), 25 * time.Hour, ActsADay, "a day (UTC)"},
	}
	counts := make([]*redis.IntCmd, len(windows))
	cmds, err := l.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, w := range windows {
			counts[i] = p.HIncrBy(ctx, w.key, user, 1)
			p.PExpire(ctx, w.key, w.lasting)
		}
		return nil
	})
	if err := allErrors(ctx, cmds, err); err != nil {
		return fmt.Errorf("count the acts of a user: %w", err)
	}
	for i, w := range windows {
		if counts[i].Val() > w.most {
			return fmt.Errorf("%w: %d are allowed %s", ErrTooManyActs, w.most, w.words)
		}
	}
	return nil
}

// actScore returns the score of an entry: milliseconds with a fraction. Without the fraction, Redis would sort the entries of one millisecond by their text
// instead of their time.
func actScore(t time.Time) float64 { return float64(t.UnixMicro()) / 1000 }

// addEntry adds an entry, or returns an error if Redis removed the entry at once because the log is full. If the clock of Redis was set back, older entries can
// have later times than the new entry, and a full log would drop the new entry as the oldest. addEntry therefore gives later entries an earlier score. Entries
// that are at most a millisecond later keep their scores, because they come from concurrent writers.
func (l auditLog) addEntry(ctx context.Context, text string, now time.Time) error {
	key, at := l.key("audit"), actScore(now)
	var later *redis.StringSliceCmd
	var all, old *redis.IntCmd
	cmds, err := l.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		later = p.ZRangeByScore(ctx, key, &redis.ZRangeBy{Min: "(" + strconv.FormatFloat(at+1, 'f', -1, 64), Max: "+inf", Count: hardMaxActs})
		all = p.ZCard(ctx, key)
		old = p.ZCount(ctx, key, "-inf", fmt.Sprintf("(%d", now.Add(-keepMore).UnixMilli()))
		return nil
	})
	if err := allErrors(ctx, cmds, err); err != nil {
		return err
	}
	var stays *redis.FloatCmd
	cmds, err = l.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, member := range later.Val() {
			p.ZAdd(ctx, key, redis.Z{Score: at - 1 + float64(i)/float64(len(later.Val())+1), Member: member})
		}
		if surplus := min(all.Val()+1-MaxActs, old.Val()); surplus > 0 {
			p.ZRemRangeByRank(ctx, key, 0, surplus-1)
		}
		p.ZAdd(ctx, key, redis.Z{Score: at, Member: text})
		p.ZRemRangeByScore(ctx, key, "-inf", fmt.Sprintf("(%d", now.Add(-keepActs).UnixMilli()))
		p.ZRemRangeByRank(ctx, key, 0, -1-hardMaxActs)
		p.PExpire(ctx, key, keepActs)
		stays = p.ZScore(ctx, key, text)
		return nil
	})
	if errors.Is(stays.Err(), redis.Nil) {
		return errors.New("the entry did not stay in it")
	}
	return allErrors(ctx, cmds, err)
}

// Unchanged marks an act as one that changed nothing. Such acts of one user and kind share one entry, with their number and the time of the newest act.
func (l auditLog) Unchanged(ctx context.Context, a Act) error {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	key := l.key("audit")
	found := l.redis.ZRevRange(ctx, key, 0, MaxActs-1)
	if err := errorOf(ctx, found); err != nil {
		return fmt.Errorf("shorten the audit log: %w", err)
	}
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("shorten the audit log: %w: %w", ErrInvalid, err)
	}
	replaced := []any{string(text)}
	a.Unchanged = 1
	for _, earlier := range found.Val() {
		var b Act
		if json.Unmarshal([]byte(earlier), &b) == nil && b.By == a.By && b.Kind == a.Kind && b.Unchanged > 0 {
			a.Unchanged += b.Unchanged
			replaced = append(replaced, earlier)
		}
	}
	if text, err = json.Marshal(a); err != nil {
		return fmt.Errorf("shorten the audit log: %w: %w", ErrInvalid, err)
	}
	cmds, err := l.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, key, redis.Z{Score: actScore(a.Time), Member: text})
		p.ZRem(ctx, key, replaced...)
		return nil
	})
	return wrapIf("shorten the audit log", allErrors(ctx, cmds, err))
}

// Acts returns the newest acts, from new to old. Damaged entries are left out, with an error that wraps ErrCorrupt.
func (l auditLog) Acts(ctx context.Context, most int) ([]Act, error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	found := l.redis.ZRevRange(ctx, l.key("audit"), 0, int64(max(min(most, MaxActs), 1))-1)
	if err := errorOf(ctx, found); err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return decodeAll[Act]("read the audit log", found.Val())
}
