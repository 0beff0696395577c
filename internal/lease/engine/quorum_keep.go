package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/register"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// acquire brings requests to their answers.
func (q *quorum) acquire(ctx context.Context, asked []Request, answers []Answer, todo []int) {
	if err := q.ready(); err != nil {
		fail(asked, answers, todo, err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*q.cfg.Timeout)
	defer cancel()
	if _, err := q.serverTime(ctx); err != nil { // without which the first proposal would be refused
		fail(asked, answers, todo, err)
		return
	}
	claims := make([]*claim, len(todo))
	tasks := make([]task, len(todo))
	last := map[string]*claim{} // by lock
	for n, i := range todo {
		claims[n] = q.newClaim(asked[i])
		claims[n].older = last[asked[i].Lock]
		last[asked[i].Lock], tasks[n] = claims[n], claims[n]
	}
	if len(todo) > 0 {
		q.run(ctx, tasks)
	}
	for n, i := range todo {
		answers[i] = claims[n].answer
	}
}

// release gives a row back on all nodes, and first, if it is accounted for, takes its run out of the register. It returns when a majority has
// answered; the others are told in the background.
func (q *quorum) release(ctx context.Context, r releaseCall) (verdict string, err error) {
	if r.accounted {
		return q.endRun(ctx, r)
	}
	_, few := r.ticket.(narrow)
	k := q.releaseOf(r.lock, r.id, r.slot, 0, few)
	end := q.cfg.Clock() + r.length
	_, trusted, _ := q.order()
	everyone := !few || trusted < len(q.nodes) // one that answered the claim may hang since
	p := poll{calls: []nodeCall{k}, wave: q.majority, everyone: everyone, patience: 10, missed: func(n *node) { n.owe(k, end) }}
	p.sure = func(votes [][]vote, late bool) bool {
		released, gone := words(votes[0], "released"), words(votes[0], "gone")
		return released >= q.majority || gone > len(q.nodes)-q.majority || late && released+gone >= q.majority
	}
	for tries := 1; ; tries++ {
		votes, _ := q.ask(ctx, p)
		released, gone := words(votes[0], "released"), words(votes[0], "gone")
		switch {
		case released+gone < q.majority:
			err = q.errorOf(votes[0])
			r.doubt = r.doubt || few && r.held // it leaves no tombstone that would prove it
			if q.refuse(votes[0]) {
				return "", err
			}
		case gone > len(q.nodes)-q.majority:
			return r.sure("gone"), nil
		default:
			return "released", nil
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("%w (%w)", err, ctx.Err())
		}
		backoff.Sleep(ctx, randomPause(tries))
	}
}

// endRun takes a run out of the register, and its row with it. Where no majority can be reached, the row at least is given back.
func (q *quorum) endRun(ctx context.Context, r releaseCall) (string, error) {
	t := &change{quorum: q, lock: r.lock, permanent: r.permanent, id: r.id, ends: true}
	known := false
	t.edit = func(g *register.Register, v register.View) {
		run, running := g.Runs[r.id]
		if !running {
			run = g.Orphans[r.id]
		}
		known = known || run.Attempt > 0
		if r.leaves {
			g.HandOver(r.id, r.attempt)
			return
		}
		if ended := g.End(r.id, r.undo, r.previous, r.perTick); ended && r.outcome != "" {
			g.RecordOutcome(run.Tick, r.outcome == script.OutcomeSucceeded, r.perTick, v.Now)
		}
	}
	q.run(ctx, []task{t})
	q.releaseEverywhere(q.releaseOf(r.lock, r.id, -1, 0, false), r.length) // also where the register was not accepted
	switch {
	case t.failed != nil:
		return "", t.failed
	case !known || t.rows == 0:
		return "gone", nil
	}
	return "released", nil
}

// renew asks all nodes to renew a batch of leases. The result counts with a majority.
func (q *quorum) renew(ctx context.Context, batch []*Lease) []reply {
	calls := make([]nodeCall, len(batch))
	for i, l := range batch {
		calls[i] = nodeCall{script: q.scripts.Renew, keys: q.keys(l.lock, l.id), id: l.id, idle: q.idleOf(l.permanent),
			args: script.QuorumRenewArgs{Slot: l.slot, Lease: l.length, Token: l.token, Owner: q.cfg.Owner, Delay: l.delay, Slots: l.slots}.Encode()}
	}
	votes, sent := q.ask(ctx, poll{calls: calls, wave: len(q.nodes), sure: func(votes [][]vote, late bool) bool {
		return !slices.ContainsFunc(votes, func(of []vote) bool {
			renewed, silent := words(of, "renewed"), silentNodes(of)
			return silent > 0 && (!late || renewed < q.majority && renewed+silent >= q.majority)
		})
	}})
	replies := make([]reply, len(batch))
	for i, of := range votes {
		replies[i] = q.renewed(of, batch[i].length, sent)
	}
	return replies
}

// renewed merges the votes for one lease. It is lost when so many nodes have refused that no majority is left.
func (q *quorum) renewed(votes []vote, length, sent time.Duration) reply {
	now, _ := q.estimate(q.cfg.Clock())
	switch {
	case words(votes, "renewed") >= q.majority:
		return reply{verdict: "renewed", now: now, sent: sent, acked: true, Values: []any{now + length.Microseconds(), int64(0), stopOf(votes)},
			partial: words(votes, "renewed") < len(q.nodes)}
	case words(votes, "lost") > len(q.nodes)-q.majority:
		n := slices.IndexFunc(votes, func(v vote) bool { return v.heard() && v.word == "lost" })
		return reply{verdict: "lost", now: now, sent: sent, acked: true, Values: []any{votes[n].Text(0), ""}}
	}
	return reply{err: q.errorOf(votes)}
}

func (q *quorum) inspect(ctx context.Context, locks []InspectRequest, states []State, valid []int) {
	changes := make([]*change, len(valid))
	tasks := make([]task, len(valid))
	for n, i := range valid {
		l := locks[i]
		t := &change{quorum: q, lock: l.Lock, permanent: l.Permanent, look: true}
		through := int64(0)
		if !l.SettleThrough.IsZero() {
			through = l.SettleThrough.Unix()
		}
		t.edit = func(g *register.Register, v register.View) {
			g.Acknowledge(l.Told)
			before := g.Inspect(l.Schedule, through, clock.ToMicros(l.SettleDeadline), l.SettleRecord(), v.Now, v.Latest)
			states[i] = q.state(g, v, before, t.floor)
			if l.Follower != "" {
				through, ended := g.Follow(l.Follower, max(l.Used.Unix(), 0), v.Now)
				states[i].Through, states[i].Ended = clock.FromMicros(through*1e6), ended
			}
		}
		changes[n], tasks[n] = t, t
	}
	if len(tasks) > 0 {
		q.run(ctx, tasks)
	}
	for n, i := range valid {
		if err := changes[n].failed; err != nil {
			states[i] = State{Err: fmt.Errorf("look at %q: %w", locks[i].Lock, err)}
		}
	}
}

// state combines the register and the rows.
func (q *quorum) state(g *register.Register, v register.View, before, floor int64) State {
	s := State{Now: clock.FromMicros(v.Now), Floor: Token(floor), Decided: clock.FromMicros(max(g.Low, g.Since/1e6) * 1e6), Before: clock.FromMicros(before * 1e6),
		Pause: lease.ReadPause(g.Paused).Pause()}
	for _, row := range v.Rows {
		run, known := g.Runs[row.ID]
		if !known && (row.State != "" || row.Votes+v.Unheard < q.majority) {
			continue // of a claim that is on its way, or was given up, or of a run that has ended
		}
		if !known {
			run = register.Run{Attempt: 1}
		}
		s.Rows = append(s.Rows, Row{ID: row.ID, Owner: row.Owner, Slot: row.Slot, Token: Token(row.Token), Length: time.Duration(row.Lease) * time.Microsecond,
			Expiry: clock.FromMicros(row.Expiry), Tick: clock.FromMicros(run.Tick * 1e6), Attempt: run.Attempt, Trigger: run.Trigger, Memo: run.Memo})
	}
	for id, run := range g.Orphans {
		s.Orphans = append(s.Orphans, Row{ID: id, Owner: run.Owner, Slot: run.Slot, Token: Token(run.Token),
			Length: time.Duration(run.Lease) * time.Microsecond, Tick: clock.FromMicros(run.Tick * 1e6), Attempt: run.Attempt, Trigger: run.Trigger, Memo: run.Memo,
			EndedWell: run.EndedWell, Stopped: run.Stopped})
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
	slices.SortFunc(s.Rows, func(a, b Row) int { return a.Slot - b.Slot })
	return s
}

func (q *quorum) deleteOrphans(ctx context.Context, lock string, ids []string) error {
	t := &change{quorum: q, lock: lock, look: true}
	t.edit = func(g *register.Register, _ register.View) {
		for _, id := range ids {
			delete(g.Orphans, id)
		}
	}
	q.run(ctx, []task{t})
	return t.failed
}
