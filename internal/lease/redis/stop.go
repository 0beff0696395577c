package redis

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// Stop asks holders to stop. It marks the leases and publishes a message. If the message is lost, the holder gets the mark with the next renewal.
func (c *Store) Stop(ctx context.Context, requests []lease.StopRequest) []lease.StopAnswer {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	calls := make([]call, len(requests))
	for i, r := range requests {
		calls[i] = c.newCall(c.scripts.Stop, r.Lock, r.ID, r.Permanent, stopParams.encode(&r, c.grantChannel())...)
	}
	answers := make([]lease.StopAnswer, len(requests))
	for i, got := range c.execCalls(ctx, calls) {
		switch {
		case got.verdict == "asked":
			answers[i] = lease.StopAnswer{ID: got.Text(0), Owner: got.Text(1), Slot: int(got.Number(2))}
		case got.verdict != "gone":
			answers[i].Err = fmt.Errorf("stop a holder of %q: %w", requests[i].Lock, cmp.Or(got.err, lease.ErrUnknown))
		}
	}
	return answers
}

// Pause sets or ends the pauses of locks, and publishes the changes.
func (c *Store) Pause(ctx context.Context, requests []lease.PauseRequest) []lease.PauseAnswer {
	calls := make([]call, len(requests))
	for i, r := range requests {
		calls[i] = c.newCall(c.scripts.Pause, r.Lock, "", r.Permanent, pauseParams.encode(&r)...)
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
		_ = Process(ctx, c.cfg.Redis, redis.NewIntCmd(ctx, "publish", c.grantChannel(), news))
	}
	return answers
}

// TakePause reads the pause of a lock, and makes it the observed pause of another one. Each later request for that lock carries the observed pause, as after a
// loss of data.
func (c *Store) TakePause(ctx context.Context, from, lock string) error {
	got := c.execCalls(ctx, []call{c.inspectionBy(c.scripts.Inspect, lease.InspectRequest{Lock: from, Permanent: true})})[0]
	if err := stateOf(from, got).Err; err != nil || got.paused == "" {
		return err
	}
	known, _ := c.cfg.Observed.Last(lock)
	known.Paused, known.Permanent, known.Seen = lease.NewerPause(known.Paused, got.paused), true, got.sent
	c.cfg.Observed.Learn(lock, known, c.cfg.Idle, got.now, true)
	got = c.execCalls(ctx, []call{c.inspectionBy(c.scripts.Inspect, lease.InspectRequest{Lock: lock, Permanent: true})})[0]
	return stateOf(lock, got).Err
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
		return lease.PauseAnswer{Now: lease.FromMicros(got.now), Before: lease.ReadPause(got.Text(0)).Pause(), After: lease.ReadPause(got.paused).Pause()}
	}
	return lease.PauseAnswer{Err: fmt.Errorf("pause %q: %w", r.Lock, err)}
}

// Remove deletes locks that are no longer used.
func (c *Store) Remove(ctx context.Context, locks []string, unusedSince time.Time) (removed []bool, err error) {
	calls := make([]call, len(locks))
	for i, lock := range locks {
		if err := lease.CheckName(lock); err != nil {
			return nil, fmt.Errorf("remove lock %q: %w", lock, err)
		}
		calls[i] = c.newCall(c.scripts.Remove, lock, "", true, removeParams.encode(unusedSince)...)
	}
	removed = make([]bool, len(locks))
	for i, got := range c.execCalls(ctx, calls) {
		if got.err != nil {
			err = fmt.Errorf("remove lock %q: %w", locks[i], got.err)
			continue
		}
		if removed[i] = got.verdict == "removed"; removed[i] {
			c.cfg.Observed.Delete(locks[i]) // otherwise this client's next request would restore the state, as after a loss of data
		}
	}
	return removed, err
}
