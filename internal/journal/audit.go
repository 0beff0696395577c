package journal

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// The bounds of the audit log.
const (
	// MaxActs is how many acts are kept, and KeepActs for how long after the last one.
	MaxActs  = 1000
	KeepActs = 90 * 24 * time.Hour
	// maxActJobs is how many of its jobs an act names.
	maxActJobs = 20
)

// The kinds of acts.
const (
	ActTrigger = "trigger"
	ActCancel  = "cancel"
	ActPause   = "pause"
	ActResume  = "resume"
)

// auditLog has the acts of people.
type auditLog struct{ *namespace }

// Act is something that a person has asked the cluster to do. Its JSON is part of the contract with users.
type Act struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"` // by the server's clock
	By   string    `json:"by"`   // the user's name
	Kind string    `json:"act"`
	// Jobs are those that it is about, the first 20 of JobCount.
	Jobs     []string   `json:"jobs"`
	JobCount int        `json:"job_count"`
	RunID    string     `json:"run_id,omitempty"` // of the one run that is canceled
	Tick     *time.Time `json:"tick,omitempty"`   // that is run again
	Until    *time.Time `json:"until,omitempty"`  // of a pause that ends by itself
	Reason   string     `json:"reason,omitempty"`
}

// fault is for an act that was read.
func (a *Act) fault() string {
	if !sound(a.Time) || a.Tick != nil && !sound(*a.Tick) || a.Until != nil && !sound(*a.Until) {
		return "a time beyond the calendar"
	}
	if a.JobCount < len(a.Jobs) || len(a.Jobs) > maxActJobs || slices.ContainsFunc(a.Jobs, func(job string) bool { return !isName(job) }) {
		return fmt.Sprintf("%d jobs", a.JobCount)
	}
	return ""
}

// Audit writes down an act before it is done: its id, time and number of jobs are set here. Until counts from the server's time if it is set: pass 0
// for an act without an end.
func (l auditLog) Audit(ctx context.Context, a Act, lasting time.Duration) error {
	ctx, cancel := l.within(ctx)
	defer cancel()
	now, err := l.redis.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("write the audit log: %w", errors.Join(err, context.Cause(ctx)))
	}
	a.ID, a.Time, a.By, a.Reason = strings.ToLower(rand.Text()[:16]), now.UTC(), cut(a.By), cut(a.Reason)
	if lasting > 0 {
		until := now.UTC().Add(lasting)
		a.Until = &until
	}
	a.JobCount = len(a.Jobs)
	a.Jobs = slices.Clone(a.Jobs[:min(len(a.Jobs), maxActJobs)])
	if fault := a.fault(); fault != "" {
		return fmt.Errorf("write the audit log: %w: %s", ErrInvalid, fault)
	}
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("write the audit log: %w: %w", ErrInvalid, err)
	}
	cmds, err := l.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, l.key("audit"), redis.Z{Score: float64(now.UnixMilli()), Member: text})
		p.ZRemRangeByRank(ctx, l.key("audit"), 0, -1-MaxActs)
		p.PExpire(ctx, l.key("audit"), KeepActs)
		return nil
	})
	return wrapIf("write the audit log", allErrors(ctx, cmds, err))
}

// Acts returns the newest acts, the newest first. Damaged entries are left out, with an error that wraps ErrCorrupt.
func (l auditLog) Acts(ctx context.Context, most int) ([]Act, error) {
	ctx, cancel := l.within(ctx)
	defer cancel()
	found := l.redis.ZRevRange(ctx, l.key("audit"), 0, int64(max(min(most, MaxActs), 1))-1)
	if err := errorOf(ctx, found); err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	var acts []Act
	var damaged error
	for _, text := range found.Val() {
		var a Act
		err := json.Unmarshal([]byte(text), &a)
		if fault := a.fault(); err == nil && fault != "" {
			err = errors.New(fault)
		}
		if err != nil {
			damaged = multierr.Join(damaged, fmt.Errorf("read the audit log: %w: %w", ErrCorrupt, err))
			continue
		}
		acts = append(acts, a)
	}
	return acts, damaged
}
