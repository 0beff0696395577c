// Package quorum keeps locks on an odd number of independent Redis masters, the nodes. A node votes for a lease by storing a row for its slot. A lock
// also has a register, which is the state of its ticks and runs: a majority of the nodes accepts each new register, under a ballot number as in
// Paxos. See [rules.Register] and docs/decisions/013-quorum.md.
package quorum

import (
	"context"
	"fmt"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/redis"
	"github.com/cronclave/cronclave/internal/lease/rules"
)

// A Config is the configuration of a store on several masters.
type Config struct {
	Nodes   []redis.Client
	Prefix  string
	Owner   string
	Timeout time.Duration // the timeout of a round trip
	Idle    time.Duration // the time after which an unused lock expires
	Clock   func() time.Duration

	Work      *lease.Background
	Observed  *lease.ObservedCache        // the tokens that this store has proposed
	HeldToken func(id string) lease.Token // returns the token of the client's lease with this id; 0 if it holds none
	Contended func(lock, holder string)   // reports that another client holds a lock for which a caller waits
}

// A Store keeps locks on several independent masters: it sends each request to the masters, and merges their replies. It implements [lease.Store].
type Store struct {
	cfg     Config
	scripts redis.NodeScripts
	offers  offers
	*masters
}

func (q *Store) indexKey() string { return redis.IndexKey(q.cfg.Prefix) }

func (q *Store) nodeKeys(lock, id string) []string {
	return redis.NodeKeys(q.cfg.Prefix, redis.LockKey(q.cfg.Prefix, lock), id)
}

// idleOf returns the time, in microseconds, after which an unused lock expires; 0 if it never expires.
func (q *Store) idleOf(permanent bool) int64 {
	if permanent {
		return 0
	}
	return q.cfg.Idle.Microseconds()
}

// ServerTime returns the estimate of the nodes' time. It asks the nodes only if too few clocks are known.
func (q *Store) ServerTime(ctx context.Context) (time.Time, error) {
	if micros, ok := q.Estimate(q.cfg.Clock()); ok {
		return lease.FromMicros(micros), nil
	}
	k := nodeCall{script: q.scripts.Claim, keys: q.nodeKeys("", "time"), id: "time",
		args: redis.NodeClaim{Request: &lease.Request{}, Slot: redis.NoSlot, Everyone: true, All: true}.Encode()}
	votes, _ := q.askNodes(ctx, poll{calls: []nodeCall{k}, wave: len(q.nodes), sure: func(votes [][]vote, _ bool) bool {
		return count(votes[0], func(v vote) bool { return v.hasAnswered() }) >= q.majority
	}})
	micros, ok := q.Estimate(q.cfg.Clock())
	if !ok {
		return time.Time{}, fmt.Errorf("read the servers' clocks: %w", q.errorOf(votes[0]))
	}
	return lease.FromMicros(micros), nil
}

// Close waits for round trips under way.
func (q *Store) Close() error {
	q.workers.close()
	return nil
}

// RoundTrips returns 2, because a claim has two phases with a round trip each.
func (q *Store) RoundTrips() int { return 2 }

// New returns the store and starts its rejoiner, which lets nodes that have lost their data vote again. The rejoiner ends with cfg.Work.
func New(cfg Config) *Store {
	e := &env{clock: cfg.Clock, timeout: cfg.Timeout, scripts: redis.NewNodeScripts(), memberKey: redis.MemberKey(cfg.Prefix)}
	q := &Store{cfg: cfg, scripts: e.scripts, masters: newMasters(e, cfg.Nodes)}
	r := &rejoiner{q, make(chan struct{}, 1)}
	e.wakeUp = r.wakeUp
	cfg.Work.Go(r.runLoop)
	return q
}

// Check returns an error if the masters of a quorum can't be used.
func Check(nodes []redis.Client) error {
	if n := len(nodes); n < 3 || n%2 == 0 {
		return fmt.Errorf("locking: Config.Quorum has %d masters: it must be an odd number, 3 at least", n)
	}
	for i, r := range nodes {
		if one, ok := r.(*goredis.Client); !ok || one == nil {
			return fmt.Errorf("locking: Config.Quorum[%d] must be the client of one independent master", i)
		}
		if slices.Contains(nodes[:i], r) {
			return fmt.Errorf("locking: Config.Quorum[%d] is there twice", i)
		}
		if !redis.ObeysContext(r) {
			return fmt.Errorf("locking: set ContextTimeoutEnabled in the options of Config.Quorum[%d]: without it a hung socket can outlast a lease", i)
		}
	}
	return nil
}

// Inspect reads the registers of locks. If a request asks for it, Inspect also settles ticks.
func (q *Store) Inspect(ctx context.Context, locks []lease.InspectRequest) []lease.State {
	states := make([]lease.State, len(locks))
	changes, tasks := make([]*change, len(locks)), make([]task, len(locks))
	for i, l := range locks {
		t := &change{store: q, lock: l.Lock, permanent: l.Permanent, look: true}
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
				states[i].RulesSince = lease.FromMicros(since)
			}
			if l.Follower != "" {
				through, ended, err := g.Follow(l.Follower, max(l.Used.Unix(), 0), v.Now)
				if states[i].Through, states[i].Ended = lease.FromMicros(through*1e6), ended; err != nil {
					states[i] = lease.State{Err: fmt.Errorf("look at %q: %w", l.Lock, err)}
				}
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
	s := lease.State{Now: lease.FromMicros(v.Now), Floor: lease.Token(floor), Decided: lease.FromMicros(g.Decided() * 1e6), Before: lease.FromMicros(before * 1e6),
		Pause: lease.ReadPause(g.Paused).Pause()}
	for _, row := range v.Rows {
		run, known := g.Runs[row.ID]
		if !known && (row.State != "" || row.Votes+v.Unheard < q.majority) {
			continue // the row is from an unfinished or abandoned claim, or from a run that has ended
		}
		if !known {
			run = rules.Run{Attempt: 1}
		}
		s.Running = append(s.Running, lease.Row{ID: row.ID, Holder: row.Owner, Slot: row.Slot, Token: lease.Token(row.Token), Length: time.Duration(row.Lease) * time.Microsecond,
			Expires: lease.FromMicros(row.Expiry), Tick: lease.FromMicros(run.Tick * 1e6), Attempt: run.Attempt, Trigger: run.Trigger, Memo: run.Memo})
	}
	for id, run := range g.Orphans {
		s.Orphans = append(s.Orphans, lease.Row{ID: id, Holder: run.Owner, Slot: run.Slot, Token: lease.Token(run.Token),
			Length: time.Duration(run.Lease) * time.Microsecond, Tick: lease.FromMicros(run.Tick * 1e6), Attempt: run.Attempt, Trigger: run.Trigger, Memo: run.Memo,
			EndedWell: run.EndedWell, Stopped: run.Stopped, Abandoned: run.Abandoned})
	}
	for tick, e := range g.Ticks {
		if e.State == lease.TickReopened {
			s.Open = append(s.Open, lease.FromMicros(tick*1e6))
		}
	}
	for _, e := range g.Settled {
		s.Settled = append(s.Settled, lease.NewSettlement(e.Tick, e.At, e.How))
	}
	slices.SortFunc(s.Open, time.Time.Compare)
	slices.SortFunc(s.Running, func(a, b lease.Row) int { return a.Slot - b.Slot })
	return s
}

// DeleteOrphans deletes orphans of a lock.
func (q *Store) DeleteOrphans(ctx context.Context, lock string, ids []string) error {
	t := &change{store: q, lock: lock, look: true}
	t.edit = func(g *rules.Register, _ rules.View) {
		for _, id := range ids {
			delete(g.Orphans, id)
		}
	}
	q.runTasks(ctx, []task{t})
	return t.failed
}

// Renew asks all nodes to renew a batch of leases. A lease is renewed if a majority renews it.
func (q *Store) Renew(ctx context.Context, batch []lease.Renewal) []lease.Renewed {
	calls := make([]nodeCall, len(batch))
	for i, l := range batch {
		r := &l.Row.Request
		calls[i] = nodeCall{script: q.scripts.Renew, keys: q.nodeKeys(r.Lock, r.ID), id: r.ID, idle: q.idleOf(r.Permanent),
			args: redis.NodeRenew(l.Row, q.cfg.Owner)}
	}
	votes, sent := q.askNodes(ctx, poll{calls: calls, wave: len(q.nodes), sure: func(votes [][]vote, late bool) bool {
		return !slices.ContainsFunc(votes, func(of []vote) bool {
			renewed, silent := countWords(of, "renewed"), silentNodes(of)
			return silent > 0 && (!late || renewed < q.majority && renewed+silent >= q.majority)
		})
	}})
	renewed := make([]lease.Renewed, len(batch))
	for i, of := range votes {
		renewed[i] = q.mergeRenewed(of, batch[i], sent)
	}
	return renewed
}

// mergeRenewed merges the votes for one lease. The lease is lost if so many nodes refused that no majority is left.
func (q *Store) mergeRenewed(votes []vote, r lease.Renewal, sent time.Duration) lease.Renewed {
	switch have := countWords(votes, "renewed"); {
	case have >= q.majority:
		length := r.Row.Request.Lease
		next := q.RenewAfter(length)
		if !r.Aside {
			next = nextRenewal(r.Row, next, have == len(q.nodes))
		}
		return lease.Renewed{Done: true, Left: length, Stop: stopOf(votes), Sent: sent, Next: next}
	case countWords(votes, "lost") > len(q.nodes)-q.majority:
		n := slices.IndexFunc(votes, func(v vote) bool { return v.hasAnswered() && v.word == "lost" })
		return lease.Renewed{Lost: true, Why: votes[n].Text(0)}
	}
	return lease.Renewed{Err: q.errorOf(votes)}
}

// RenewAfter returns a third of the time left, so that two renewals may fail before the lease ends. It returns at most [QuietBefore], so that masters
// that lost their data receive a renewal before a new quorum can begin.
func (q *Store) RenewAfter(left time.Duration) time.Duration { return min(left/3, QuietBefore) }

// RecordAttempt writes the proposed attempt of a run to the register. It does nothing if the request is not [lease.Request.Accounted], because such a
// lease leaves no orphan.
func (q *Store) RecordAttempt(row *lease.HeldRow, attempt int64) error {
	if !row.Request.Accounted() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*q.cfg.Timeout)
	defer cancel()
	known, err := q.amendRun(ctx, row, func(_ *rules.Register, run *rules.Run, _ int64) {
		run.Attempt = max(run.Attempt, int(attempt))
	})
	if err == nil && !known {
		err = fmt.Errorf("%w: its run has ended for the others", lease.ErrLost)
	}
	return err
}

// MarkSucceeded records in the register that the work of a lease has succeeded.
func (q *Store) MarkSucceeded(ctx context.Context, row *lease.HeldRow, followed bool) error {
	known, err := q.amendRun(ctx, row, func(g *rules.Register, run *rules.Run, now int64) {
		run.EndedWell = true
		if followed && run.Tick > 0 {
			g.RecordOutcome(run.Tick, true, row.Request.PerTick(), now)
		}
	})
	if err == nil && !known {
		return fmt.Errorf("mark the work under a lease of %q as succeeded: %w", row.Request.Lock, lease.ErrLost)
	}
	return err
}

// Stop writes the stop requests to the registers, and then marks the holders' rows on all nodes that answer. A holder gets the stop request with the
// reply to its next renewal, even if only one node has the mark. Stop writes the register first. Otherwise the holder could receive the request and
// die before the register is written, and its orphan would lack the stop reason.
func (q *Store) Stop(ctx context.Context, requests []lease.StopRequest) []lease.StopAnswer {
	ctx, cancel := context.WithTimeout(ctx, 2*q.cfg.Timeout)
	defer cancel()
	answers := make([]lease.StopAnswer, len(requests))
	changes, tasks, chosen := make([]*change, len(requests)), make([]task, len(requests)), make([]rules.Choice, len(requests))
	for i, r := range requests {
		t := &change{store: q, lock: r.Lock, permanent: r.Permanent, look: true}
		t.edit = func(g *rules.Register, v rules.View) { chosen[i] = g.Stop(r, q.stateOf(g, v, 0, 0).Running, v) }
		changes[i], tasks[i] = t, t
	}
	q.runTasks(ctx, tasks)
	for i, r := range requests {
		switch failed := changes[i].failed; {
		case failed != nil:
			answers[i].Err = fmt.Errorf("stop a holder of %q: %w", r.Lock, failed)
		case chosen[i].Found:
			answers[i] = q.markRow(ctx, r, chosen[i])
		}
	}
	return answers
}

// markRow marks a row on the nodes, so that its holder receives the stop request.
func (q *Store) markRow(ctx context.Context, r lease.StopRequest, c rules.Choice) lease.StopAnswer {
	k := nodeCall{script: q.scripts.Stop, keys: q.nodeKeys(r.Lock, c.Row.ID), id: c.Row.ID, idle: q.idleOf(r.Permanent), args: redis.NodeStop(c.Row.Slot, c.Reason)}
	votes, _ := q.askNodes(ctx, poll{calls: []nodeCall{k}, wave: len(q.nodes), sure: func(votes [][]vote, late bool) bool {
		return silentNodes(votes[0]) == 0 || late && countWords(votes[0], "asked", "gone") >= q.majority
	}})
	switch {
	case countWords(votes[0], "asked") > 0:
		return lease.StopAnswer{ID: c.Row.ID, Owner: c.Row.Holder, Slot: c.Row.Slot}
	case countWords(votes[0], "gone") >= q.majority:
		return lease.StopAnswer{}
	}
	return lease.StopAnswer{Err: fmt.Errorf("stop a holder of %q: %w", r.Lock, q.errorOf(votes[0]))}
}

// stopOf returns the stop reason in the replies to a renewal; "" if there is none.
func stopOf(votes []vote) string {
	n := slices.IndexFunc(votes, func(v vote) bool { return v.hasAnswered() && v.word == "renewed" && v.Text(0) != "" })
	if n < 0 {
		return ""
	}
	return votes[n].Text(0)
}

// Pause writes pauses to the registers of locks.
func (q *Store) Pause(ctx context.Context, requests []lease.PauseRequest) []lease.PauseAnswer {
	answers := make([]lease.PauseAnswer, len(requests))
	changes, tasks := make([]*change, len(requests)), make([]task, len(requests))
	for i, r := range requests {
		t := &change{store: q, lock: r.Lock, permanent: r.Permanent}
		edited := false
		t.edit = func(g *rules.Register, v rules.View) {
			was := lease.ReadPause(g.Paused)
			is := was.Next(r, v.Now)
			g.Paused = is.Text()
			answers[i].Now, answers[i].After = lease.FromMicros(v.Now), is.Pause()
			if !edited { // a repeated call may read the pause that the first call wrote
				answers[i].Before, edited = was.Pause(), true
			}
		}
		changes[i], tasks[i] = t, t
	}
	q.runTasks(ctx, tasks)
	for i, t := range changes {
		if t.failed != nil {
			answers[i] = lease.PauseAnswer{Err: fmt.Errorf("pause %q: %w", requests[i].Lock, t.failed)}
		}
	}
	return answers
}

// TakePause writes the pause of a lock to the register of another one, if it was changed later than the pause there.
func (q *Store) TakePause(ctx context.Context, from, lock string) error {
	var pause string
	read := &change{store: q, lock: from, permanent: true, look: true, edit: func(g *rules.Register, _ rules.View) { pause = g.Paused }}
	if q.runTasks(ctx, []task{read}); read.failed != nil || pause == "" {
		return read.failed
	}
	write := &change{store: q, lock: lock, permanent: true, look: true, edit: func(g *rules.Register, _ rules.View) { g.Paused = lease.NewerPause(g.Paused, pause) }}
	q.runTasks(ctx, []task{write})
	return write.failed
}
