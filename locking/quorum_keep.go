package locking

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// acquire brings requests to their answers.
func (q *quorum) acquire(ctx context.Context, asked []Request, answers []Answer, todo []int) {
	ctx, cancel := context.WithTimeout(ctx, 2*q.cfg.Timeout)
	defer cancel()
	if _, err := q.serverTime(ctx); err != nil { // without which the first proposal would be refused
		for _, i := range todo {
			answers[i].Verdict, answers[i].Err = Unknown, fmt.Errorf("acquire %q: %w", asked[i].Lock, err)
		}
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
	k := q.releaseOf(r.lock, r.id, r.slot, 0, r.narrow)
	end := q.cfg.Clock() + r.length
	_, trusted, _ := q.order()
	everyone := !r.narrow || trusted < len(q.nodes) // one that answered the claim may hang since
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
			r.doubt = r.doubt || r.narrow && r.held // it leaves no tombstone that tells
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
		sleep(ctx, randomPause(tries))
	}
}

// endRun takes a run out of the register, and its row with it. Where no majority can be reached, the row at least is given back.
func (q *quorum) endRun(ctx context.Context, r releaseCall) (string, error) {
	t := &change{quorum: q, lock: r.lock, permanent: r.permanent, id: r.id, ends: true}
	known := false
	t.edit = func(g *register, v view) {
		run, running := g.Runs[r.id]
		if !running {
			run = g.Orphans[r.id]
		}
		known = known || run.Attempt > 0
		if r.leaves {
			g.leave(r.id, r.attempt)
			return
		}
		if ended := g.end(r.id, r.undo, r.previous, r.perTick); ended && r.outcome != "" {
			g.conclude(run.Tick, r.outcome == flag(true), r.perTick, v.now)
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
		calls[i] = nodeCall{script: q.scripts.renew, keys: q.keys(l.lock, l.id), id: l.id, idle: q.idleOf(l.permanent),
			args: []any{l.slot, l.length.Microseconds(), int64(l.token), q.cfg.Owner, l.delay.Microseconds(), l.slots}}
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
		return reply{verdict: "renewed", now: now, sent: sent, acked: true, rest: []any{now + length.Microseconds(), int64(0), stopOf(votes)},
			partial: words(votes, "renewed") < len(q.nodes)}
	case words(votes, "lost") > len(q.nodes)-q.majority:
		n := slices.IndexFunc(votes, func(v vote) bool { return v.heard() && v.word == "lost" })
		return reply{verdict: "lost", now: now, sent: sent, acked: true, rest: []any{votes[n].text(0), ""}}
	}
	return reply{err: q.errorOf(votes)}
}

// look tells the states of locks.
func (q *quorum) look(ctx context.Context, locks []LookRequest, states []State, valid []int) {
	changes := make([]*change, len(valid))
	tasks := make([]task, len(valid))
	for n, i := range valid {
		l := locks[i]
		t := &change{quorum: q, lock: l.Lock, permanent: l.Permanent, look: true}
		through := int64(0)
		if !l.SettleThrough.IsZero() {
			through = l.SettleThrough.Unix()
		}
		t.edit = func(g *register, v view) {
			g.told(l.Told)
			before := g.look(l.Schedule, through, toMicros(l.SettleDeadline), l.settleHow(), v.now, v.latest)
			states[i] = q.state(g, v, before, t.floor)
			if l.Follower != "" {
				through, ended := g.follow(l.Follower, max(l.Used.Unix(), 0), v.now)
				states[i].Through, states[i].Ended = fromMicros(through*1e6), ended
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

// state is what the register and the rows tell together.
func (q *quorum) state(g *register, v view, before, floor int64) State {
	s := State{Now: fromMicros(v.now), Floor: Token(floor), Decided: fromMicros(max(g.Low, g.Since/1e6) * 1e6), Before: fromMicros(before * 1e6),
		Pause: readPause(g.Paused).pause()}
	for _, row := range v.rows {
		run, known := g.Runs[row.id]
		if !known && (row.tentative || row.votes+v.unheard < q.majority) {
			continue // of a claim that is on its way, or was given up
		}
		if !known {
			run = runRow{Attempt: 1}
		}
		s.Rows = append(s.Rows, Row{ID: row.id, Owner: row.owner, Slot: row.slot, Token: Token(row.token), Length: time.Duration(row.lease) * time.Microsecond,
			Expiry: fromMicros(row.expiry), Tick: fromMicros(run.Tick * 1e6), Attempt: run.Attempt, Trigger: run.Trigger, Memo: run.Memo})
	}
	for id, run := range g.Orphans {
		s.Orphans = append(s.Orphans, Row{ID: id, Owner: run.Owner, Slot: run.Slot, Token: Token(run.Token),
			Length: time.Duration(run.Lease) * time.Microsecond, Tick: fromMicros(run.Tick * 1e6), Attempt: run.Attempt, Trigger: run.Trigger, Memo: run.Memo,
			EndedWell: run.EndedWell, Stopped: run.Stopped})
	}
	for tick, e := range g.Ticks {
		if e.State == reopened {
			s.Open = append(s.Open, fromMicros(tick*1e6))
		}
	}
	for _, e := range g.Settled {
		s.Settled = append(s.Settled, newSettlement(e.Tick, e.At, e.How))
	}
	slices.SortFunc(s.Open, time.Time.Compare)
	slices.SortFunc(s.Rows, func(a, b Row) int { return a.Slot - b.Slot })
	return s
}

// bury forgets orphans.
func (q *quorum) bury(ctx context.Context, lock string, ids []string) error {
	t := &change{quorum: q, lock: lock, look: true}
	t.edit = func(g *register, _ view) {
		for _, id := range ids {
			delete(g.Orphans, id)
		}
	}
	q.run(ctx, []task{t})
	return t.failed
}
