package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/backoff"
)

const (
	// MaxRequests is the maximum number of waiting requests in a namespace.
	MaxRequests = 1000
	// MaxRequestLife is the maximum time for which a request waits.
	MaxRequestLife = 10 * time.Minute
	// keepAnswer is the time for which Redis keeps an answer, and the request under a key of AskOnce.
	keepAnswer = 10 * time.Minute
)

// ErrTooMany means that MaxRequests requests are waiting.
var ErrTooMany = errors.New("too many requests wait")

type requestList struct{ *namespace }

// A Request asks the replicas for a run of a job.
type Request struct {
	// ID identifies the request: 1 to MaxRunID visible ASCII characters without "|".
	ID  string `json:"id"`
	Job string `json:"job"`
	// Tick is the tick to run; zero for a run without a tick.
	Tick time.Time `json:"tick,omitzero"`
	// By is the name of the user, for display only.
	By string `json:"by,omitempty"`
	// Created and Expires are by the clock of Redis. From Expires on, no replica starts a run for the request.
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

// An Answer is the result of a request.
type Answer struct {
	// Request is the id of the request.
	Request string `json:"request"`
	// Outcome is OutcomeRunning once the run has started. If the run will never start, it is OutcomeSkipped, OutcomeMissed or OutcomeFailed, with a Reason. It
	// is "" from the time at which a replica takes the request until the run starts.
	Outcome Outcome `json:"outcome,omitempty"`
	Reason  Reason  `json:"reason,omitempty"`
	// Replica is the replica that answers. RunID is the run that it started.
	Replica string `json:"replica"`
	RunID   string `json:"run_id,omitempty"`
}

func (r *Request) findFault() string {
	if life := r.Expires.Sub(r.Created); !isSound(r.Tick) || !isSound(r.Created) || !isSound(r.Expires) || life <= 0 || life > MaxRequestLife {
		return fmt.Sprintf("it waits from %v to %v", r.Created, r.Expires)
	}
	return ""
}

func (a *Answer) findFault() string { return "" }

// Ask publishes a request that expires after life, by the clock of Redis. It returns the request with Created and Expires set.
func (l requestList) Ask(ctx context.Context, r Request, life time.Duration) (Request, error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	r, now, err := l.withTimes(ctx, r, life)
	if err != nil {
		return r, err
	}
	return r, wrapIf("ask for a run of job "+r.Job, l.writeRequest(ctx, r, now, life))
}

func (l requestList) withTimes(ctx context.Context, r Request, life time.Duration) (_ Request, now time.Time, err error) {
	if !isRunID(r.ID) || !IsJobName(r.Job) || life < time.Millisecond || life > MaxRequestLife {
		return r, now, fmt.Errorf("ask for a run of job %.40q: %w: id %.40q, life %v", r.Job, ErrInvalid, r.ID, life)
	}
	if now, err = l.redis.Time(ctx).Result(); err != nil {
		return r, now, fmt.Errorf("ask for a run of job %s: %w", r.Job, errors.Join(err, context.Cause(ctx)))
	}
	r.Created, r.Expires, r.Tick, r.By = now.UTC(), now.UTC().Add(life), r.Tick.UTC(), cutText(r.By)
	return r, now, nil
}

// writeRequest writes a request and announces it afterwards, because receivers of the announcement read the request.
func (l requestList) writeRequest(ctx context.Context, r Request, now time.Time, life time.Duration) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	waiting := l.redis.ZCount(ctx, l.key("requests"), formatNumber(now.UnixMilli()), "+inf")
	if err := errorOf(ctx, waiting); err != nil {
		return err
	}
	if waiting.Val() >= MaxRequests {
		return ErrTooMany
	}
	cmds, err := l.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, l.requestKey(r.ID), text, life)
		p.ZAdd(ctx, l.key("requests"), redis.Z{Score: float64(r.Expires.UnixMilli()), Member: r.ID})
		p.ZRemRangeByScore(ctx, l.key("requests"), "-inf", "("+formatNumber(now.UnixMilli()))
		p.PExpire(ctx, l.key("requests"), MaxRequestLife)
		return nil
	})
	if err := allErrors(ctx, cmds, err); err != nil {
		return err
	}
	// The announcement only saves time, and an ACL may forbid the channel. Replicas also read the requests periodically.
	_ = l.redis.Publish(ctx, l.key("asked"), r.ID).Err()
	return nil
}

func (l requestList) requestKey(id string) string { return l.key("request:" + id) }

func (l requestList) answerKey(id string) string { return l.requestKey(id) + ":answer" }

// AskOnce is like Ask, for a caller that repeats a request because it does not know whether the first call succeeded. Within ten minutes, all calls with the
// same key return the same request, with the times of the first call.
func (l requestList) AskOnce(ctx context.Context, key string, r Request, life time.Duration) (Request, error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	r, now, err := l.withTimes(ctx, r, life)
	if err != nil {
		return r, err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return r, fmt.Errorf("ask for a run of job %s: %w: %w", r.Job, ErrInvalid, err)
	}
	first := l.redis.SetNX(ctx, l.onceKey(key), text, keepAnswer)
	switch err := errorOf(ctx, first); {
	case err != nil:
		return r, fmt.Errorf("ask for a run of job %s: %w", r.Job, err)
	case !first.Val():
		earlier, _, err := l.Asked(ctx, key)
		return earlier, err
	}
	return r, wrapIf("ask for a run of job "+r.Job, l.writeRequest(ctx, r, now, life))
}

// Asked returns the request that AskOnce stored under a key; ok is false if there is none. If the request still waits, Asked publishes it again, because the
// caller of AskOnce may have failed after it stored the request and before it published it.
func (l requestList) Asked(ctx context.Context, key string) (r Request, ok bool, err error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	found := l.redis.Get(ctx, l.onceKey(key))
	if errors.Is(found.Err(), redis.Nil) {
		return r, false, nil
	}
	if err := errorOf(ctx, found); err != nil {
		return r, false, fmt.Errorf("read an earlier request: %w", err)
	}
	if err := json.Unmarshal([]byte(found.Val()), &r); err != nil || !isRunID(r.ID) || !IsJobName(r.Job) || r.findFault() != "" {
		return r, false, fmt.Errorf("read an earlier request: %s: %w", l.onceKey(key), errors.Join(ErrCorrupt, err))
	}
	now, err := l.redis.Time(ctx).Result()
	if err != nil {
		return r, true, fmt.Errorf("ask again for a run of job %s: %w", r.Job, errors.Join(err, context.Cause(ctx)))
	}
	if _, answered, err := l.AnswerTo(ctx, r.ID); answered || err != nil || !now.Before(r.Expires) {
		return r, true, err
	}
	return r, true, wrapIf("ask again for a run of job "+r.Job, l.writeRequest(ctx, r, now, r.Expires.Sub(now)))
}

func (l requestList) onceKey(key string) string { return l.key("request-once:" + key) }

// Requests returns the waiting requests, from old to new. Entries that Ask did not write are left out.
func (l requestList) Requests(ctx context.Context) ([]Request, error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	ids := l.redis.ZRangeArgs(ctx, redis.ZRangeArgs{Key: l.key("requests"), Start: 0, Stop: MaxRequests - 1})
	if err := errorOf(ctx, ids); err != nil || len(ids.Val()) == 0 {
		return nil, wrapIf("list requests", err)
	}
	var requests []Request
	_, err := pipelineEach(ctx, l.namespace, ids.Val(), MaxRequests, func(p redis.Pipeliner, id string) *redis.StringCmd {
		return p.Get(ctx, l.requestKey(id))
	}, func(id string, found *redis.StringCmd) error {
		var r Request
		if found.Err() == nil && decodeEntry(found.Val(), &r, &r.ID, id) == nil && IsJobName(r.Job) { // otherwise it has expired, or Ask did not write it
			requests = append(requests, r)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list requests: %w", err)
	}
	slices.SortStableFunc(requests, func(a, b Request) int { return a.Created.Compare(b.Created) })
	return requests, nil
}

// Answer writes the answer to a request. An answer with an Outcome is final. Only the replica that handles the request writes answers.
func (l requestList) Answer(ctx context.Context, a Answer) error {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	if !isRunID(a.Request) || a.RunID != "" && !isRunID(a.RunID) {
		return fmt.Errorf("answer a request: %w: id %.40q, run %.40q", ErrInvalid, a.Request, a.RunID)
	}
	a.Reason, a.Replica = cutText(a.Reason), cutText(a.Replica)
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("answer a request: %w: %w", ErrInvalid, err)
	}
	cmds, err := l.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		if a.Outcome == "" {
			return p.SetNX(ctx, l.answerKey(a.Request), text, keepAnswer).Err()
		}
		p.Set(ctx, l.answerKey(a.Request), text, keepAnswer)
		p.ZRem(ctx, l.key("requests"), a.Request)
		return p.Del(ctx, l.requestKey(a.Request)).Err()
	})
	return wrapIf("answer request "+a.Request, allErrors(ctx, cmds, err))
}

// AnswerTo returns the current answer to a request; ok is false if there is none.
func (l requestList) AnswerTo(ctx context.Context, id string) (a Answer, ok bool, err error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	cmd := l.redis.Get(ctx, l.answerKey(id))
	if errors.Is(cmd.Err(), redis.Nil) {
		return a, false, nil
	}
	if err := errorOf(ctx, cmd); err != nil {
		return a, false, fmt.Errorf("read the answer to request %s: %w", id, err)
	}
	if err := decodeEntry(cmd.Val(), &a, &a.Request, id); err != nil {
		return a, false, fmt.Errorf("read the answer to request %s: %s: %w", id, l.answerKey(id), err)
	}
	return a, true, nil
}

const (
	// lookForRequests is the interval at which Subscribe reads the requests even without a message. Messages can get lost, and an ACL can forbid the channel.
	lookForRequests = 3 * time.Second
	// redial is the pause between the end of a subscription and the next one.
	redial = 2 * time.Second
	// quiet is the time without a message after which a subscription is renewed, because a dead connection gives no other sign.
	quiet = 30 * time.Second
)

// Subscribe calls f with all waiting requests whenever a request is published, and also periodically, until ctx ends. All calls come from one goroutine. f
// receives the same request repeatedly until it is answered or has expired.
func (l requestList) Subscribe(ctx context.Context, f func([]Request)) {
	arrived := make(chan struct{}, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ; ctx.Err() == nil; backoff.Sleep(ctx, redial) {
			l.listenOnce(ctx, arrived)
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-arrived:
		case <-timer.C:
		}
		if requests, err := l.Requests(ctx); err == nil && len(requests) > 0 && ctx.Err() == nil {
			f(requests)
		}
		timer.Reset(lookForRequests)
	}
	<-over
}

// receiveMessage returns the next message. If the Redis client panics, receiveMessage returns an error, and the caller must close the subscription.
func receiveMessage(ctx context.Context, sub *redis.PubSub) (m any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("read a message: %w: %v", ErrCorrupt, p)
		}
	}()
	return sub.ReceiveTimeout(ctx, quiet) //nolint:wrapcheck // the error only ends the subscription
}

func (l requestList) listenOnce(ctx context.Context, arrived chan<- struct{}) {
	sub := l.redis.Subscribe(ctx)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })() // the end of ctx does not end a read of go-redis
	first, cancel := l.withTimeout(ctx)
	err := sub.Subscribe(first, l.key("asked"))
	cancel()
	ended, end := context.WithCancel(ctx)
	end() // receiveMessage gets an ended context, because go-redis would otherwise reconnect by itself
	for err == nil {
		var m any
		if m, err = receiveMessage(ended, sub); err != nil {
			return
		}
		if _, ok := m.(*redis.Message); !ok {
			continue
		}
		select {
		case arrived <- struct{}{}:
		default: // a notice is already pending
		}
	}
}
