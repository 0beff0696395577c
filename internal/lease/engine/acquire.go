package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cronclave/cronclave/internal/lease"
)

// Acquire asks once for one row. See [Client.AcquireAll]. If ctx is canceled after the request was sent, Acquire still waits for the reply, for at
// most [Config.Timeout].
func (c *Client) Acquire(ctx context.Context, r Request) Answer {
	r = r.WithDefaults()
	if s, ok := c.store.(compacter); ok {
		if result, ok := s.AcquireCompact(ctx, r); ok {
			return c.answerOf(&r, &result)
		}
	}
	return c.acquireAll(ctx, []Request{r})[0]
}

// AcquireAll asks for many rows in one round trip and returns an answer for each request, in order. After the verdict [Unknown], Redis may or may not
// have granted the row: ask again with the answer's lease id, or call [Client.Withdraw]. An invalid request also gets the verdict Unknown, but its
// error is not [ErrUnknown].
func (c *Client) AcquireAll(ctx context.Context, requests []Request) []Answer {
	return c.acquireAll(ctx, slices.Clone(requests))
}

// acquireAll is [Client.AcquireAll] for a slice that it may modify.
func (c *Client) acquireAll(ctx context.Context, requests []Request) []Answer {
	answers := make([]Answer, len(requests))
	asked, places := splitValid(requests, answers)
	if len(asked) == 0 {
		return answers
	}
	c.store.Acquire(ctx, asked, func(n int, result lease.Result) { answers[places[n]] = c.answerOf(&asked[n], &result) })
	for n, r := range asked {
		if a := &answers[places[n]]; a.Verdict == Held && !r.Abstain && r.Channel == "" { // the store reports the contention of requests that wait in the queue
			c.cfg.Hooks.reportContention(r.Lock, a.Holder)
		}
	}
	return answers
}

// splitValid returns the valid requests with their defaults, and answers the invalid ones. It reuses the array of requests. places has the original
// index of each valid request.
func splitValid(requests []Request, answers []Answer) (asked []Request, places []int) {
	asked, places = requests[:0], make([]int, 0, len(requests))
	for i, r := range requests {
		r = r.WithDefaults()
		if err := errors.Join(r.Validate(), lease.CheckName(r.Lock)); err != nil {
			answers[i] = Answer{Verdict: Unknown, ID: r.ID, Err: fmt.Errorf("request for lock %q: %w", r.Lock, err)}
			continue
		}
		asked, places = append(asked, r), append(places, i)
	}
	return asked, places
}
