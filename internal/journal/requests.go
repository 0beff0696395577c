package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// MaxRequests is how many requests may wait at a time in a namespace.
	MaxRequests = 1000
	// MaxRequestLife is how long one may wait.
	MaxRequestLife = 10 * time.Minute
	// keepAnswer is how long what became of a request is kept.
	keepAnswer = 10 * time.Minute
)

// ErrTooMany says that MaxRequests wait already.
var ErrTooMany = errors.New("too many requests wait")

// Request asks the replicas for a run of a job.
type Request struct {
	// ID is its identity: 1 to MaxRunID visible ASCII characters without "|".
	ID string `json:"id"`
	// Job is the job's name.
	Job string `json:"job"`
	// Tick is what the run is to have as its own; zero for none.
	Tick time.Time `json:"tick,omitzero"`
	// By names the user that asks, for people.
	By string `json:"by,omitempty"`
	// Created and Expires are by the server's clock; from Expires on no replica starts it.
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

// Answer is what became of a request.
type Answer struct {
	// Request is its id.
	Request string `json:"request"`
	// Outcome is OutcomeRunning once it was started; OutcomeSkipped, OutcomeMissed or OutcomeFailed, with a Reason, if it never will be;
	// "" while a replica that has taken it waits.
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Replica is the one that answers, RunID the run that it started.
	Replica string `json:"replica"`
	RunID   string `json:"run_id,omitempty"`
}

// Ask publishes a request that waits for life, by the server's clock, and returns it with its times.
func (j *Journal) Ask(ctx context.Context, r Request, life time.Duration) (Request, error) {
	ctx, cancel := j.within(ctx)
	defer cancel()
	if !isRunID(r.ID) || !isName(r.Job) || life < time.Millisecond || life > MaxRequestLife {
		return r, fmt.Errorf("ask for a run of job %.40q: %w: id %.40q, life %v", r.Job, ErrInvalid, r.ID, life)
	}
	now, err := j.redis.Time(ctx).Result()
	if err != nil {
		return r, fmt.Errorf("ask for a run of job %s: %w", r.Job, errors.Join(err, context.Cause(ctx)))
	}
	r.Created, r.Expires, r.By = now.UTC(), now.UTC().Add(life), cut(r.By)
	if !r.Tick.IsZero() {
		r.Tick = r.Tick.UTC()
	}
	if err := j.ask(ctx, r, now, life); err != nil {
		return r, fmt.Errorf("ask for a run of job %s: %w", r.Job, err)
	}
	return r, nil
}

// ask writes the request before it announces it, since the receivers read it.
func (j *Journal) ask(ctx context.Context, r Request, now time.Time, life time.Duration) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	waiting := j.redis.ZCount(ctx, j.key("requests"), number(now.UnixMilli()), "+inf")
	if err := allErrors(ctx, []redis.Cmder{waiting}, waiting.Err()); err != nil {
		return err
	}
	if waiting.Val() >= MaxRequests {
		return ErrTooMany
	}
	cmds, err := j.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, j.requestKey(r.ID), text, life)
		p.ZAdd(ctx, j.key("requests"), redis.Z{Score: float64(r.Expires.UnixMilli()), Member: r.ID})
		p.ZRemRangeByScore(ctx, j.key("requests"), "-inf", "("+number(now.UnixMilli()))
		p.PExpire(ctx, j.key("requests"), MaxRequestLife)
		return nil
	})
	if err := allErrors(ctx, cmds, err); err != nil {
		return err
	}
	// The channel is a hint, that an ACL may forbid: replicas look from time to time, too.
	_ = j.redis.Publish(ctx, j.key("asked"), r.ID).Err()
	return nil
}

func (j *Journal) requestKey(id string) string { return j.key("request:" + id) }

// answerKey is where the answer to a request is.
func (j *Journal) answerKey(id string) string { return j.requestKey(id) + ":answer" }

// Requests are those that wait, oldest first. Entries that Ask did not write are left out.
func (j *Journal) Requests(ctx context.Context) ([]Request, error) {
	ctx, cancel := j.within(ctx)
	defer cancel()
	ids := j.redis.ZRangeArgs(ctx, redis.ZRangeArgs{Key: j.key("requests"), Start: 0, Stop: MaxRequests - 1})
	if err := allErrors(ctx, []redis.Cmder{ids}, ids.Err()); err != nil || len(ids.Val()) == 0 {
		return nil, wrapIf("list requests", err)
	}
	cmds, err := j.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range ids.Val() {
			p.Get(ctx, j.requestKey(id))
		}
		return nil
	})
	if _, err := sortErrors(ctx, cmds, err); err != nil {
		return nil, fmt.Errorf("list requests: %w", err)
	}
	var requests []Request
	for i, id := range ids.Val() {
		text, err := cmds[i].(*redis.StringCmd).Result()
		var r Request
		if err != nil || decodeEntry(text, &r, &r.ID, id) != nil || !isName(r.Job) {
			continue // expired, or not written by Ask
		}
		requests = append(requests, r)
	}
	slices.SortStableFunc(requests, func(a, b Request) int { return a.Created.Compare(b.Created) })
	return requests, nil
}

func wrapIf(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Answer writes the answer to a request. An answer with an Outcome is final; only the replica that is entitled to act on the request gives one.
func (j *Journal) Answer(ctx context.Context, a Answer) error {
	ctx, cancel := j.within(ctx)
	defer cancel()
	if !isRunID(a.Request) || a.RunID != "" && !isRunID(a.RunID) {
		return fmt.Errorf("answer a request: %w: id %.40q, run %.40q", ErrInvalid, a.Request, a.RunID)
	}
	a.Reason, a.Replica = cut(a.Reason), cut(a.Replica)
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("answer a request: %w: %w", ErrInvalid, err)
	}
	cmds, err := j.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		if a.Outcome == "" {
			return p.SetNX(ctx, j.answerKey(a.Request), text, keepAnswer).Err()
		}
		p.Set(ctx, j.answerKey(a.Request), text, keepAnswer)
		p.ZRem(ctx, j.key("requests"), a.Request)
		return p.Del(ctx, j.requestKey(a.Request)).Err()
	})
	return wrapIf("answer request "+a.Request, allErrors(ctx, cmds, err))
}

// AnswerTo returns the answer to a request so far; ok is false while there is none.
func (j *Journal) AnswerTo(ctx context.Context, id string) (a Answer, ok bool, err error) {
	ctx, cancel := j.within(ctx)
	defer cancel()
	cmd := j.redis.Get(ctx, j.answerKey(id))
	if errors.Is(cmd.Err(), redis.Nil) {
		return a, false, nil
	}
	if err := allErrors(ctx, []redis.Cmder{cmd}, cmd.Err()); err != nil {
		return a, false, fmt.Errorf("read the answer to request %s: %w", id, err)
	}
	if err := decodeEntry(cmd.Val(), &a, &a.Request, id); err != nil {
		return a, false, fmt.Errorf("read the answer to request %s: %w", id, err)
	}
	return a, true, nil
}
