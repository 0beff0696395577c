package redis

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// Pause sets or ends the pauses of locks, and publishes the changes.
func (c *Store) Pause(ctx context.Context, requests []lease.PauseRequest) []lease.PauseAnswer {
	calls := make([]call, len(requests))
	for i, r := range requests {
		calls[i] = c.newCall(c.scripts.Pause, r.Lock, "", r.Permanent, script.PauseArgs(r).Encode()...)
	}
	answers := make([]lease.PauseAnswer, len(requests))
	var news []byte
	for i, got := range c.execCalls(ctx, calls) {
		r := requests[i]
		if answers[i] = c.pauseAnswer(r, got); answers[i].Err == nil {
			known := got.knownState()
			news = granted{lock: r.Lock, ledger: known.Ledger, now: got.now, floor: known.Floor, longest: known.Longest, low: known.Low,
				permanent: r.Permanent}.appendLine(news)
		}
	}
	if len(news) > 0 {
		// An error does no harm: a client without the message gets the pause in the reply to its next request.
		_ = transport.Process(ctx, c.cfg.Redis, redis.NewIntCmd(ctx, "publish", c.grantChannel(), news))
	}
	return answers
}

func (c *Store) pauseAnswer(r lease.PauseRequest, got reply) lease.PauseAnswer {
	err := got.err
	switch {
	case err != nil:
	case got.verdict != "paused":
		err = fmt.Errorf("%w: the request reached the server too late", lease.ErrUnknown)
	case !got.acked:
		err = c.unackedError()
	default:
		return lease.PauseAnswer{Now: clock.FromMicros(got.now), Before: lease.ReadPause(got.Text(0)).Pause(), After: lease.ReadPause(got.paused).Pause()}
	}
	return lease.PauseAnswer{Err: fmt.Errorf("pause %q: %w", r.Lock, err)}
}
