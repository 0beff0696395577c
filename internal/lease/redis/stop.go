package redis

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// Stop asks holders to stop. It marks the leases and publishes a message. The reply to the next renewal also has the reason.
func (c *Store) Stop(ctx context.Context, requests []lease.StopRequest) []lease.StopAnswer {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	calls := make([]call, len(requests))
	for i, r := range requests {
		calls[i] = c.newCall(c.scripts.Stop, r.Lock, r.ID, r.Permanent, script.StopArgs{StopRequest: r, Channel: c.grantChannel()}.Encode()...)
	}
	answers := make([]lease.StopAnswer, len(requests))
	for i, got := range c.execCalls(ctx, calls) {
		switch {
		case got.verdict == "told":
			answers[i] = lease.StopAnswer{ID: got.Text(0), Owner: got.Text(1), Slot: int(got.Number(2))}
		case got.verdict != "gone":
			answers[i].Err = fmt.Errorf("stop a holder of %q: %w", requests[i].Lock, cmp.Or(got.err, lease.ErrUnknown))
		}
	}
	return answers
}

// parseStop parses a message of lua/stop.lua.
func parseStop(line string) (id, reason string, ok bool) {
	rest, ok := strings.CutPrefix(line, "stop\t")
	if !ok {
		return "", "", false
	}
	id, reason, ok = strings.Cut(rest, "\t")
	return id, reason, ok && id != "" && reason != "" && lease.OneLine(reason, lease.MaxHeard)
}
