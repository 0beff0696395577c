package locking

import (
	"context"
	"fmt"
	"slices"
)

// stop enters in the registers who is to stop, and then marks their rows on all nodes that answer, which tell the holders at the next renewal: one is
// enough for that. In this order: whoever was told is known to have been, so what it leaves when it dies tells that it was to stop.
func (q *quorum) stop(ctx context.Context, requests []StopRequest, answers []Told, asked []int) {
	if len(asked) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*q.cfg.Timeout)
	defer cancel()
	changes, tasks, chosen := make([]*change, len(asked)), make([]task, len(asked)), make([]choice, len(asked))
	for n, i := range asked {
		r := requests[i]
		t := &change{quorum: q, lock: r.Lock, permanent: r.Permanent, look: true}
		t.edit = func(g *register, v view) { chosen[n] = g.stop(r, q.state(g, v, 0, 0).Rows, v) }
		changes[n], tasks[n] = t, t
	}
	q.run(ctx, tasks)
	for n, i := range asked {
		switch failed := changes[n].failed; {
		case failed != nil:
			answers[i].Err = fmt.Errorf("stop a holder of %q: %w", requests[i].Lock, failed)
		case chosen[n].found:
			answers[i] = q.mark(ctx, requests[i], chosen[n])
		}
	}
}

// choice is the row whose holder is to stop, and why.
type choice struct {
	row    Row
	reason string
	found  bool
}

// stop chooses among the rows that are held, as lua/stop.lua does, and enters that in the account of runs. (A lease that is not accounted for is told
// by the mark on its rows alone; nobody carries it on.)
func (g *register) stop(r StopRequest, rows []Row, v view) choice {
	if r.ID != "" {
		i := slices.IndexFunc(rows, func(row Row) bool { return row.ID == r.ID })
		if i < 0 {
			return choice{}
		}
		return g.toStop(rows[i], r.Reason, g.Runs[r.ID].StoppedFor)
	}
	tick := r.Tick.Unix()
	if g.isDecided(tick) || len(rows) < r.Slots {
		return choice{}
	}
	var oldest, leaving *Row
	for i := range rows {
		row, run := &rows[i], g.Runs[rows[i].ID]
		switch {
		case run.Stopped != "" && run.StoppedFor == tick:
			return choice{*row, run.Stopped, true}
		case run.Stopped != "" && g.isDecided(run.StoppedFor): // it makes room for nobody yet
			if leaving == nil {
				leaving = row
			}
		case run.Stopped == "" && run.began(row.Token, tick, r, v) && (oldest == nil || row.Token < oldest.Token):
			oldest = row
		}
	}
	switch {
	case leaving != nil:
		return g.toStop(*leaving, r.Reason, tick)
	case oldest != nil:
		return g.toStop(*oldest, r.Reason, tick)
	}
	return choice{}
}

// toStop enters why a run is to stop, and for which tick. The first reason is the one.
func (g *register) toStop(row Row, reason string, tick int64) choice {
	run, accounted := g.Runs[row.ID]
	if !accounted {
		return choice{row, reason, true}
	}
	if run.Stopped == "" {
		run.Stopped = reason
	}
	run.StoppedFor = tick
	g.Runs[row.ID] = run
	return choice{row, run.Stopped, true}
}

// isDecided tells whether a tick needs no room any more.
func (g *register) isDecided(tick int64) bool {
	e, known := g.Ticks[tick]
	return known && e.State == decidedEntry || tick <= g.Low && !(known && e.State == reopened)
}

// began tells whether a run had begun before a tick was due. Tokens tell when: those that are ahead of the clocks were given by wrong ones, and tell
// nothing. A run that carries on another's began with that.
func (run runRow) began(token Token, tick int64, r StopRequest, v view) bool {
	return run.Tick < tick && (int64(token) < toMicros(r.From) || int64(token) > minuteAfter(v.latest) || run.Heir != nil)
}

// mark has the holder of a row told.
func (q *quorum) mark(ctx context.Context, r StopRequest, c choice) Told {
	k := nodeCall{script: q.scripts.stop, keys: q.keys(r.Lock, c.row.ID), id: c.row.ID, idle: q.idleOf(r.Permanent), args: []any{c.row.Slot, c.reason}}
	votes, _ := q.ask(ctx, poll{calls: []nodeCall{k}, wave: len(q.nodes), sure: func(votes [][]vote, late bool) bool {
		return silentNodes(votes[0]) == 0 || late && words(votes[0], "told", "gone") >= q.majority
	}})
	switch {
	case words(votes[0], "told") > 0:
		return Told{ID: c.row.ID, Owner: c.row.Owner, Slot: c.row.Slot}
	case words(votes[0], "gone") >= q.majority:
		return Told{}
	}
	return Told{Err: fmt.Errorf("stop a holder of %q: %w", r.Lock, q.errorOf(votes[0]))}
}

// stopOf is why a holder is to stop whose lease the votes have renewed; "" if it is not.
func stopOf(votes []vote) string {
	n := slices.IndexFunc(votes, func(v vote) bool { return v.heard() && v.word == "renewed" && v.text(0) != "" })
	if n < 0 {
		return ""
	}
	return votes[n].text(0)
}
