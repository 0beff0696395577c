package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cronclave/cronclave/internal/lease"
)

// Acquire asks once for one row. See [Client.AcquireAll]. A request that was sent can't be taken back: if ctx is cancelled meanwhile, it returns with
// the reply, or after [Config.Timeout].
func (c *Client) Acquire(ctx context.Context, r Request) Answer {
	r = r.WithDefaults()
	if s, ok := c.store.(compacter); ok {
		if result, ok := s.AcquireCompact(ctx, r); ok {
			return c.answer(&r, &result)
		}
	}
	return c.acquireAll(ctx, []Request{r})[0]
}

// AcquireAll asks for many rows in one round trip and returns an answer for each, in order. The verdict [Unknown]
// means that the server may have granted the row all the same: ask again with the answer's lease id, or
// [Client.Withdraw] it. Requests that can't be valid are Unknown too, with an error that is not [ErrUnknown].
func (c *Client) AcquireAll(ctx context.Context, requests []Request) []Answer {
	return c.acquireAll(ctx, slices.Clone(requests))
}

// acquireAll is AcquireAll for requests that are its own to change.
func (c *Client) acquireAll(ctx context.Context, requests []Request) []Answer {
	answers := make([]Answer, len(requests))
	asked, places := valid(requests, answers)
	if len(asked) == 0 {
		return answers
	}
	c.store.Acquire(ctx, asked, func(n int, result lease.Result) { answers[placeOf(places, n)] = c.answer(&asked[n], &result) })
	for n, r := range asked {
		if a := &answers[placeOf(places, n)]; a.Verdict == Held && !r.Abstain && r.Channel == "" { // those that wait in line report it themselves
			c.cfg.Hooks.contended(r.Lock, a.Holder)
		}
	}
	return answers
}

// valid moves the requests that can be valid to the front, with their defaults, and answers the others. Without places each has kept its own.
func valid(requests []Request, answers []Answer) (asked []Request, places []int) {
	asked = requests[:0]
	for i, r := range requests {
		r = r.WithDefaults()
		if err := errors.Join(r.Validate(), lease.CheckName(r.Lock)); err != nil {
			answers[i] = Answer{Verdict: Unknown, ID: r.ID, Err: fmt.Errorf("request for lock %q: %w", r.Lock, err)}
			if places == nil {
				places = firstPlaces(len(asked))
			}
			continue
		}
		if asked = append(asked, r); places != nil {
			places = append(places, i)
		}
	}
	return asked, places
}

// firstPlaces are the places from 0 on; not nil.
func firstPlaces(n int) []int {
	places := make([]int, n)
	for i := range places {
		places[i] = i
	}
	return places
}

// placeOf is the place of the n-th valid request.
func placeOf(places []int, n int) int {
	if places == nil {
		return n
	}
	return places[n]
}
