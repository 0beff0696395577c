package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cronclave/cronclave/internal/lease"
)

// Acquire asks once for one row. See [Client.AcquireAll]. A request that was sent can't be taken back: if ctx is canceled meanwhile, Acquire returns
// with the reply, or after [Config.Timeout].
func (c *Client) Acquire(ctx context.Context, r Request) Answer {
	r = r.WithDefaults()
	if s, ok := c.store.(compacter); ok {
		if result, ok := s.AcquireCompact(ctx, r); ok {
			return c.answerOf(&r, &result)
		}
	}
	return c.acquireAll(ctx, []Request{r})[0]
}

// AcquireAll asks for many rows in one round trip and returns an answer for each, in order. The verdict [Unknown] means that the server may have
// granted the row all the same: ask again with the answer's lease id, or [Client.Withdraw] it. Invalid requests are Unknown too, with an error that
// is not [ErrUnknown].
func (c *Client) AcquireAll(ctx context.Context, requests []Request) []Answer {
	return c.acquireAll(ctx, slices.Clone(requests))
}

// acquireAll is [Client.AcquireAll], and may change requests.
func (c *Client) acquireAll(ctx context.Context, requests []Request) []Answer {
	answers := make([]Answer, len(requests))
	asked, places := splitValid(requests, answers)
	if len(asked) == 0 {
		return answers
	}
	c.store.Acquire(ctx, asked, func(n int, result lease.Result) { answers[places[n]] = c.answerOf(&asked[n], &result) })
	for n, r := range asked {
		if a := &answers[places[n]]; a.Verdict == Held && !r.Abstain && r.Channel == "" { // requests that wait in line report it themselves
			c.cfg.Hooks.reportContention(r.Lock, a.Holder)
		}
	}
	return answers
}

// splitValid moves the valid requests to the front, with their defaults, and answers the others. places has their original indexes.
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
