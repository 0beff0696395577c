package engine

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/register"
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// Pause sets or ends the pauses of many locks in one round trip, and notifies the clients that [Client.Subscribe], so
// that they remember it if the server forgets. After an unknown outcome the same may be asked again.
func (c *Client) Pause(ctx context.Context, requests []PauseRequest) []PauseAnswer {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	answers := make([]PauseAnswer, len(requests))
	var valid []int
	for i, r := range requests {
		if fault := cmp.Or(lease.CheckName(r.Lock), r.Validate(), c.ready()); fault != nil {
			answers[i].Err = fmt.Errorf("pause %q: %w", r.Lock, fault)
			continue
		}
		valid = append(valid, i)
	}
	c.store.pause(ctx, requests, answers, valid)
	return answers
}

func (c *single) pause(ctx context.Context, requests []PauseRequest, answers []PauseAnswer, valid []int) {
	calls := make([]call, len(valid))
	for n, i := range valid {
		r := requests[i]
		calls[n] = c.call(c.scripts.Pause, r.Lock, "", r.Permanent, script.PauseArgs(r).Encode()...)
	}
	var news []byte
	for n, got := range c.exec(ctx, calls) {
		r := requests[valid[n]]
		answers[valid[n]] = c.pauseAnswer(r, got)
		if answers[valid[n]].Err == nil {
			news = granted{lock: r.Lock, ledger: lease.JoinPause(got.paused, got.ledger), now: got.now, floor: got.floor, longest: got.longest, low: got.low,
				permanent: r.Permanent}.append(news)
		}
	}
	if len(news) > 0 {
		_ = transport.Process(ctx, c.cfg.Redis, redis.NewIntCmd(ctx, "publish", c.channel(), news)) // a hint: a client that did not hear it learns of the pause by its next request
	}
}

func (c *single) pauseAnswer(r PauseRequest, got reply) PauseAnswer {
	err := got.err
	switch {
	case err != nil:
	case got.verdict != "paused":
		err = fmt.Errorf("%w: the request reached the server too late", ErrUnknown)
	case !got.acked:
		err = c.unacked()
	default:
		return PauseAnswer{Now: clock.FromMicros(got.now), Before: lease.ReadPause(got.Text(0)).Pause(), After: lease.ReadPause(got.paused).Pause()}
	}
	return PauseAnswer{Err: fmt.Errorf("pause %q: %w", r.Lock, err)}
}

// pause writes to the registers of locks, as [Client.Pause] does to one server.
func (q *quorum) pause(ctx context.Context, requests []PauseRequest, answers []PauseAnswer, valid []int) {
	changes, tasks := make([]*change, len(valid)), make([]task, len(valid))
	for n, i := range valid {
		r := requests[i]
		t := &change{quorum: q, lock: r.Lock, permanent: r.Permanent}
		edited := false
		t.edit = func(g *register.Register, v register.View) {
			was := lease.ReadPause(g.Paused)
			is := was.Next(r, v.Now)
			g.Paused = is.Text()
			answers[i].Now, answers[i].After = clock.FromMicros(v.Now), is.Pause()
			if !edited { // later it may find what it wrote itself
				answers[i].Before, edited = was.Pause(), true
			}
		}
		changes[n], tasks[n] = t, t
	}
	if len(tasks) > 0 {
		q.run(ctx, tasks)
	}
	for n, i := range valid {
		if err := changes[n].failed; err != nil {
			answers[i] = PauseAnswer{Err: fmt.Errorf("pause %q: %w", requests[i].Lock, err)}
		}
	}
}
