package quorum

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/rules"
)

// Inspect reads the registers of locks, and settles ticks if a request asks for it.
func (q *Store) Inspect(ctx context.Context, locks []lease.InspectRequest) []lease.State {
	states := make([]lease.State, len(locks))
	changes, tasks := make([]*change, len(locks)), make([]task, len(locks))
	for i, l := range locks {
		t := &change{Store: q, lock: l.Lock, permanent: l.Permanent, look: true}
		through := int64(0)
		if !l.SettleThrough.IsZero() {
			through = l.SettleThrough.Unix()
		}
		t.edit = func(g *rules.Register, v rules.View) {
			g.Acknowledge(l.Acked)
			g.Abandon(l.Abandon)
			before, since := g.Inspect(l, through, v.Now, v.Latest)
			states[i] = q.stateOf(g, v, before, t.floor)
			if since > 0 {
				states[i].RulesSince = clock.FromMicros(since)
			}
			if l.Follower != "" {
				through, ended := g.Follow(l.Follower, max(l.Used.Unix(), 0), v.Now)
				states[i].Through, states[i].Ended = clock.FromMicros(through*1e6), ended
			}
		}
		changes[i], tasks[i] = t, t
	}
	q.runTasks(ctx, tasks)
	for i, t := range changes {
		if t.failed != nil {
			states[i] = lease.State{Err: fmt.Errorf("look at %q: %w", locks[i].Lock, t.failed)}
		}
	}
	return states
}

// stateOf returns the state of a lock from its register and its rows.
func (q *Store) stateOf(g *rules.Register, v rules.View, before, floor int64) lease.State {
	s := lease.State{Now: clock.FromMicros(v.Now), Floor: lease.Token(floor), Decided: clock.FromMicros(g.Decided() * 1e6), Before: clock.FromMicros(before * 1e6),
		Pause: lease.ReadPause(g.Paused).Pause()}
	for _, row := range v.Rows {
		run, known := g.Runs[row.ID]
		if !known && (row.State != "" || row.Votes+v.Unheard < q.majority) {
			continue // the row belongs to an unfinished or abandoned claim, or to a run that has ended
		}
		if !known {
			run = rules.Run{Attempt: 1}
		}
		s.Rows = append(s.Rows, lease.Row{ID: row.ID, Owner: row.Owner, Slot: row.Slot, Token: lease.Token(row.Token), Length: time.Duration(row.Lease) * time.Microsecond,
			Expiry: clock.FromMicros(row.Expiry), Tick: clock.FromMicros(run.Tick * 1e6), Attempt: run.Attempt, Trigger: run.Trigger, Memo: run.Memo})
	}
	for id, run := range g.Orphans {
		s.Orphans = append(s.Orphans, lease.Row{ID: id, Owner: run.Owner, Slot: run.Slot, Token: lease.Token(run.Token),
			Length: time.Duration(run.Lease) * time.Microsecond, Tick: clock.FromMicros(run.Tick * 1e6), Attempt: run.Attempt, Trigger: run.Trigger, Memo: run.Memo,
			EndedWell: run.EndedWell, Stopped: run.Stopped, Abandoned: run.Abandoned})
	}
	for tick, e := range g.Ticks {
		if e.State == lease.TickReopened {
			s.Open = append(s.Open, clock.FromMicros(tick*1e6))
		}
	}
	for _, e := range g.Settled {
		s.Settled = append(s.Settled, lease.NewSettlement(e.Tick, e.At, e.How))
	}
	slices.SortFunc(s.Open, time.Time.Compare)
	slices.SortFunc(s.Rows, func(a, b lease.Row) int { return a.Slot - b.Slot })
	return s
}

// DeleteOrphans deletes orphans of a lock.
func (q *Store) DeleteOrphans(ctx context.Context, lock string, ids []string) error {
	t := &change{Store: q, lock: lock, look: true}
	t.edit = func(g *rules.Register, _ rules.View) {
		for _, id := range ids {
			delete(g.Orphans, id)
		}
	}
	q.runTasks(ctx, []task{t})
	return t.failed
}
