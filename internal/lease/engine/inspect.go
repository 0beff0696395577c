package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// Inspect returns the state of many locks in one round trip. Leases that have ended make room first, and those with
// a trigger become orphans.
func (c *Client) Inspect(ctx context.Context, locks []InspectRequest) []State {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	states := make([]State, len(locks))
	err := c.ready()
	var valid []int
	for i, l := range locks {
		if fault := cmp.Or(lease.CheckName(l.Lock), l.Validate(), err); fault != nil {
			states[i].Err = fmt.Errorf("look at %q: %w", l.Lock, fault)
			continue
		}
		valid = append(valid, i)
	}
	c.store.inspect(ctx, locks, states, valid)
	return states
}

func (c *single) inspect(ctx context.Context, locks []InspectRequest, states []State, valid []int) {
	calls := make([]call, len(valid))
	for n, i := range valid {
		calls[n] = c.inspection(locks[i])
	}
	replies := c.exec(ctx, calls)
	c.inspectOnly(ctx, locks, valid, replies)
	for n, got := range replies {
		states[valid[n]] = state(locks[valid[n]].Lock, got)
	}
}

// inspectOnly repeats, without writing, the inspections that the server refused because the user may only read: from
// Redis 7 on, and on one master.
func (c *single) inspectOnly(ctx context.Context, locks []InspectRequest, valid []int, replies []reply) {
	var calls []call
	var refused []int
	for n, got := range replies {
		if l := locks[valid[n]]; redis.IsPermissionError(got.err) && l.ReadOnly() {
			calls = append(calls, c.inspectionBy(c.scripts.InspectOnly, l))
			refused = append(refused, n)
		}
	}
	if len(calls) == 0 {
		return
	}
	for i, got := range c.exec(ctx, calls) {
		if got.err == nil { // else the refusal names the missing right
			replies[refused[i]] = got
		}
	}
}

func (c *single) inspection(l InspectRequest) call { return c.inspectionBy(c.scripts.Inspect, l) }

func (c *single) inspectionBy(s *script.Script, l InspectRequest) call {
	return c.call(s, l.Lock, "", l.Permanent, script.InspectArgs(l).Encode()...)
}

// DeleteOrphans deletes orphans whose outcome was recorded.
func (c *Client) DeleteOrphans(ctx context.Context, lock string, ids ...string) error {
	if err := lease.CheckName(lock); err != nil {
		return fmt.Errorf("bury orphans of %q: %w", lock, err)
	}
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := c.store.deleteOrphans(ctx, lock, ids); err != nil {
		return fmt.Errorf("bury orphans of %q: %w", lock, err)
	}
	return nil
}

func (c *single) deleteOrphans(ctx context.Context, lock string, ids []string) (err error) {
	defer transport.Shield(&err)
	return transport.Unknown(c.cfg.Redis.HDel(ctx, c.keys(lock, "")[2], ids...).Err())
}

// endedWell is in the place of a reason, in the first line of an orphan: see state.lua.
const endedWell = "\tok"

func state(lock string, got reply) State {
	if got.err != nil || got.verdict != "state" {
		err := errors.Join(got.err)
		if err == nil {
			err = fmt.Errorf("%w: the request reached the server too late", ErrUnknown)
		}
		return State{Err: fmt.Errorf("look at %q: %w", lock, err)}
	}
	decided := max(got.low, got.Number(0)/1e6)
	s := State{Now: clock.FromMicros(got.now), Floor: Token(got.floor), Decided: clock.FromMicros(decided * 1e6),
		Closed: clock.FromMicros(got.Number(1)), Before: clock.FromMicros(got.Number(3) * 1e6), Open: openTicks(got.ledger),
		Pause: lease.ReadPause(got.paused).Pause()}
	rows := got.List(4)
	for i := 0; i+2 < len(rows); i += 3 {
		if row, ok := lease.ParseRow(transport.Text(rows[i+2])); ok {
			row.Slot, row.Expiry = int(transport.Number(rows[i])), clock.FromMicros(transport.Number(rows[i+1]))
			s.Rows = append(s.Rows, row)
		}
	}
	orphans := got.List(5)
	for i := 0; i+1 < len(orphans); i += 2 {
		first, rest, _ := strings.Cut(transport.Text(orphans[i+1]), "\n")
		if row, ok := lease.ParseRow(rest); ok {
			slot, reason, _ := strings.Cut(first, " ")
			row.Slot, _ = strconv.Atoi(slot)
			if row.EndedWell = reason == endedWell; !row.EndedWell {
				row.Stopped = reason
			}
			s.Orphans = append(s.Orphans, row)
		}
	}
	followed(&s, got)
	settled := got.List(8)
	for i := 0; i+2 < len(settled); i += 3 {
		s.Settled = append(s.Settled, lease.NewSettlement(transport.Number(settled[i]), transport.Number(settled[i+1]), transport.Text(settled[i+2])))
	}
	return s
}

// openTicks are those of a ledger, "tick prev state how;...", that are open again.
func openTicks(ledger string) []time.Time {
	var open []time.Time
	for entry := range strings.SplitSeq(ledger, ";") {
		if part := strings.SplitN(entry, " ", 4); len(part) == 4 && part[2] == lease.TickReopened {
			open = append(open, clock.FromMicros(lease.ParseNumber(part[0])*1e6))
		}
	}
	slices.SortFunc(open, time.Time.Compare)
	return open
}
