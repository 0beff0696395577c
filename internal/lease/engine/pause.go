package engine

import (
	"cmp"
	"context"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
)

// Pause sets or ends the pauses of many locks in one round trip. It notifies the clients that [Client.Subscribe], so that they know the pause if the
// server forgets it. After an unknown outcome the same request may be repeated.
func (c *Client) Pause(ctx context.Context, requests []PauseRequest) []PauseAnswer {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	check := func(r PauseRequest) error { return cmp.Or(lease.CheckName(r.Lock), r.Validate(), c.work.Ready()) }
	refuse := func(r PauseRequest, err error) PauseAnswer {
		return PauseAnswer{Err: fmt.Errorf("pause %q: %w", r.Lock, err)}
	}
	return askValid(requests, check, refuse, func(valid []PauseRequest) []PauseAnswer { return c.store.Pause(ctx, valid) })
}
