package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// Inspect returns the states of locks.
func (c *Store) Inspect(ctx context.Context, locks []lease.InspectRequest) []lease.State {
	calls := make([]call, len(locks))
	for i, l := range locks {
		calls[i] = c.inspectionBy(c.scripts.Inspect, l)
	}
	replies := c.execCalls(ctx, calls)
	c.inspectOnly(ctx, locks, replies)
	for i, got := range replies {
		if got.err == nil && !got.acked && len(locks[i].Abandon) > 0 { // a failover may undo the marks that Abandon has set
			replies[i].err = c.unackedError()
		}
	}
	states := make([]lease.State, len(locks))
	for i, got := range replies {
		states[i] = stateOf(locks[i].Lock, got)
	}
	return states
}

// inspectOnly repeats the inspections that Redis refused to a read-only user, with a script that does not write. The script needs Redis 7.
func (c *Store) inspectOnly(ctx context.Context, locks []lease.InspectRequest, replies []reply) {
	var calls []call
	var refused []int
	for i, got := range replies {
		if l := locks[i]; redis.IsPermissionError(got.err) && l.ReadOnly() {
			calls = append(calls, c.inspectionBy(c.scripts.InspectOnly, l))
			refused = append(refused, i)
		}
	}
	if len(calls) == 0 {
		return
	}
	for i, got := range c.execCalls(ctx, calls) {
		if got.err == nil { // after an error, keep the refusal, which names the missing permission
			replies[refused[i]] = got
		}
	}
}

func (c *Store) inspectionBy(s *Script, l lease.InspectRequest) call {
	return c.newCall(s, l.Lock, "", l.Permanent, inspectParams.encode(&l)...)
}

// DeleteOrphans deletes orphans of a lock.
func (c *Store) DeleteOrphans(ctx context.Context, lock string, ids []string) (err error) {
	defer Shield(&err)
	return Unknown(c.cfg.Redis.HDel(ctx, c.keys(lock, "")[2], ids...).Err())
}

// endedWell ends the first line of an orphan whose work has succeeded. The place of the reason of its end, which state.lua describes, then has "ok".
const endedWell = "\tok"

// The marks after the slot, in the first line of an orphan: see state.lua.
const orphanRenewed, orphanAbandoned = "+", "!"

func stateOf(lock string, got reply) lease.State {
	if got.err != nil || got.verdict != "state" {
		err := errors.Join(got.err)
		switch {
		case err == nil && got.verdict == "full":
			err = lease.ErrTooManyFollowers
		case err == nil:
			err = fmt.Errorf("%w: the request reached the server too late", lease.ErrUnknown)
		}
		return lease.State{Err: fmt.Errorf("look at %q: %w", lock, err)}
	}
	s := lease.State{Now: lease.FromMicros(got.now), Floor: lease.Token(got.floor), Decided: lease.FromMicros(got.Number(9) * 1e6),
		Closed: lease.FromMicros(got.Number(1)), Before: lease.FromMicros(got.Number(3) * 1e6), Open: openTicks(got.ledger),
		Pause: lease.ReadPause(got.paused).Pause()}
	if since := got.Number(10); since > 0 {
		s.RulesSince = lease.FromMicros(since)
	}
	rows := got.List(4)
	for i := 0; i+2 < len(rows); i += 3 {
		if row, ok := lease.ParseRow(Text(rows[i+2])); ok {
			row.Slot, row.Expires = int(Number(rows[i])), lease.FromMicros(Number(rows[i+1]))
			s.Running = append(s.Running, row)
		}
	}
	orphans := got.List(5)
	for i := 0; i+1 < len(orphans); i += 2 {
		first, rest, _ := strings.Cut(Text(orphans[i+1]), "\n")
		if row, ok := lease.ParseRow(rest); ok {
			slot, reason, _ := strings.Cut(first, " ")
			row.Renewed, row.Abandoned = strings.HasSuffix(slot, orphanRenewed), strings.HasSuffix(slot, orphanAbandoned)
			row.Slot, _ = strconv.Atoi(strings.TrimRight(slot, orphanRenewed+orphanAbandoned))
			if row.EndedWell = reason == endedWell; !row.EndedWell {
				row.Stopped = reason
			}
			s.Orphans = append(s.Orphans, row)
		}
	}
	addFollowed(&s, got)
	settled := got.List(8)
	for i := 0; i+2 < len(settled); i += 3 {
		s.Settled = append(s.Settled, lease.NewSettlement(Number(settled[i]), Number(settled[i+1]), Text(settled[i+2])))
	}
	return s
}

// openTicks returns the reopened ticks of a ledger in the format "tick prev state how;...".
func openTicks(ledger string) []time.Time {
	var open []time.Time
	for entry := range strings.SplitSeq(ledger, ";") {
		if part := strings.SplitN(entry, " ", 4); len(part) == 4 && part[2] == lease.TickReopened {
			open = append(open, lease.FromMicros(lease.ParseNumber(part[0])*1e6))
		}
	}
	slices.SortFunc(open, time.Time.Compare)
	return open
}

func addFollowed(s *lease.State, got reply) {
	s.Through = lease.FromMicros(got.Number(6) * 1e6)
	list := got.List(7)
	for i := 0; i+1 < len(list); i += 2 {
		s.Ended = append(s.Ended, lease.Ended{Tick: lease.FromMicros(Number(list[i]) * 1e6), Due: lease.FromMicros(Number(list[i+1]))})
	}
	lease.SortEnded(s.Ended)
}
