package quorum

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/redis"
	"github.com/cronclave/cronclave/internal/lease/rules"
)

// Acquire asks for a slot for each request: see [lease.Store].
func (q *Store) Acquire(ctx context.Context, requests []lease.Request, answer func(place int, r lease.Result)) {
	fail := func(err error) {
		for i, r := range requests {
			answer(i, lease.Failed(fmt.Errorf("acquire %q: %w", r.Lock, err)))
		}
	}
	if err := q.cfg.Work.Ready(); err != nil {
		fail(err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*q.cfg.Timeout)
	defer cancel()
	if _, err := q.ServerTime(ctx); err != nil { // without the nodes' time, the proposed token would be too small, and refused
		fail(err)
		return
	}
	tasks := make([]task, len(requests))
	last := map[string]*claim{} // the newest claim of each lock
	for i, r := range requests {
		t := q.newClaim(r, i, answer)
		t.older = last[r.Lock]
		last[r.Lock], tasks[i] = t, t
	}
	q.runTasks(ctx, tasks)
}

// now returns the estimate of the nodes' time; zero if there is none yet.
func (q *Store) now() time.Time {
	if micros, ok := q.Estimate(q.cfg.Clock()); ok {
		return lease.FromMicros(micros)
	}
	return time.Time{}
}

func (q *Store) acquireOne(ctx context.Context, r lease.Request) (result lease.Result) {
	q.Acquire(ctx, []lease.Request{r}, func(_ int, got lease.Result) { result = got })
	return result
}

// longestRest bounds the pause between two requests of [Store.Wait].
const longestRest = 100 * time.Millisecond

// Wait repeats a request with growing pauses until it is granted or ctx ends.
func (q *Store) Wait(ctx context.Context, r lease.Request) (lease.Grant, error) {
	contended := false
	var fault error // the error of the last request, if its outcome is unknown
	for again := backoff.New(lease.ShortestPause, longestRest); ; {
		a := q.acquireOne(ctx, r)
		if a.Verdict != lease.Unknown {
			fault = nil
		}
		switch {
		case a.Verdict == lease.Granted:
			return a.Grant, nil
		case a.Verdict == lease.Unknown && !a.Unsure():
			return lease.Grant{}, a.Err
		case a.Verdict == lease.Unknown && ctx.Err() == nil: // once ctx has ended, a.Err only reports that end; keep the earlier error
			fault = a.Err
		case a.Verdict == lease.Held && !contended:
			contended = true
			q.cfg.Contended(r.Lock, a.Holder)
		}
		select {
		case <-ctx.Done():
			return lease.Grant{}, lease.WaitError(ctx, fault)
		case <-q.cfg.Work.Life().Done():
			return lease.Grant{}, lease.ErrClosed
		case <-time.After(lease.RetryAfter(again.Next(), a.Until, q.now())):
		}
	}
}

// A claim is one request of [Store.Acquire]. It asks the nodes for a row until a majority has given the same row. If the request is
// [lease.Request.Accounted], the claim then writes the grant to the lock's register: see [rules.Register].
type claim struct {
	store     *Store
	r         lease.Request
	place     int // the index among the requests
	answer    func(place int, r lease.Result)
	result    lease.Result
	account   bool   // the request is [lease.Request.Accounted], so its grant must be in the register
	older     *claim // the previous claim of the batch on the same lock
	splitVote bool   // no row won a majority, because the votes were split: the verdict is Held although a row may be free

	// phase is "first" (ask only the first node for a row), "row" (ask all nodes for a row), "read" (read the state of the nodes), "prepare" (propose a
	// ballot, without asking for a row) or "accept" (write the register).
	phase string
	slot  int
	token int64
	floor int64
	tried
	value   string
	out     rules.Ruling
	mine    bool // the ruling is a grant
	shut    []string
	suspect int // the number of runs whose holder may be dead
	orphans int
	placed  bool // some nodes may have a row of this claim
	ballots []int64
	kept
	holders []string // the lease ids that held rows in the last round
}

// A tried counts the tries of a claim.
type tried struct {
	tries      int
	firstTries int // repetitions of phase "first" because the first node refused the token as too small
	refused    int // rounds without a grant although some slot may have been free
	unsettled  int // reads that found no majority with the same register
}

// A kept describes rows that nodes still have under the claim's lease id from earlier calls of Acquire.
type kept struct {
	mixed bool  // the nodes have rows with different slots or tokens
	keep  int64 // the token of the run in the register, or 0 if there is none; rows with this token stay
}

func (q *Store) newClaim(r lease.Request, place int, answer func(place int, r lease.Result)) *claim {
	t := &claim{store: q, r: r, place: place, answer: answer, phase: "row", account: r.Accounted()}
	now, _ := q.Estimate(q.cfg.Clock())
	switch {
	case r.Abstain || r.Tick != nil && lease.ToMicros(r.Tick.NotBefore) > now: // the claim must take no row: it abstains, or its tick is not due yet
		t.phase = "read"
	case t.account && t.store.isTight():
		t.phase = "first"
	}
	return t
}

func (t *claim) lockName() string { return t.r.Lock }

// toFirst reports whether the next call is only for the first node: see [claim.tookFirst].
func (t *claim) toFirst() bool {
	t.beginRounds()
	return t.phase == "first"
}

// mostRefused is the number of split votes after which a claim returns the verdict held.
const mostRefused = 16

// beginRounds prepares the first round. If the batch's previous tick is still open, this claim only reads, so that it takes no row before the older
// tick.
func (t *claim) beginRounds() {
	if o := t.older; o != nil && t.r.Tick != nil && o.r.Tick != nil && (o.splitVote || o.result.Verdict == lease.Unknown) {
		t.r.Abstain, t.phase = true, "read"
	}
	t.older = nil
}

func (t *claim) nextCall() (nodeCall, int) {
	t.beginRounds()
	k := nodeCall{script: t.store.scripts.Claim, keys: t.store.nodeKeys(t.r.Lock, t.r.ID), id: t.r.ID, idle: t.store.idleOf(t.r.Permanent)}
	wave := len(t.store.nodes)
	switch t.phase {
	case "row", "first":
		promise := redis.PromiseRow
		if !t.account {
			promise, wave = redis.PromiseNothing, t.store.majority
		}
		t.token, t.placed = t.store.proposeToken(t.r.Lock, t.floorOfRow()), true
		k.args = redis.NodeClaim{Request: &t.r, Slot: t.slot, Token: t.token, Promise: promise, Owner: t.store.cfg.Owner, Moves: t.movesArg(), Shut: t.adoptedIDs(), TombstoneLife: redis.TombstoneLife(t.store.cfg.Timeout),
			All: t.account || t.r.Slots > 1}.Encode()
		t.ballots = append(t.ballots, t.token)
	case "read":
		k.args = redis.NodeClaim{Request: &t.r, Slot: redis.NoSlot, All: true}.Encode()
	case "prepare":
		t.token = t.store.proposeToken(t.r.Lock, t.floor)
		k.args = redis.NodeClaim{Request: &t.r, Slot: redis.NoSlot, Token: t.token, Promise: redis.PromiseAny, Shut: t.shut,
			TombstoneLife: redis.TombstoneLife(t.store.cfg.Timeout), All: true}.Encode()
	default:
		slot, token := redis.NoSlot, int64(0)
		if t.mine {
			slot, token = t.out.Run.Slot, t.out.Run.Token
			t.store.offers.add(t.r.ID, t.store.cfg.Clock(), t.store.cfg.Timeout+t.r.Lease+t.r.Delay)
		}
		k.script, k.keys = t.store.scripts.Accept, append(k.keys, t.store.indexKey())
		k.args = redis.NodeAccept{Ballot: t.token, Value: t.value, Slot: slot, Lease: t.r.Lease, Token: token}.Encode()
	}
	k.patience = 1 + t.tries/8 // wait longer after eight tries; otherwise no claim would succeed while all nodes are slow
	return k, wave
}

// floorOfRow returns the floor of a token with which the claim asks for a row. Such a token must not be before the tick. The phase "prepare" has no
// such floor, because it may announce a schedule long before the tick, and nodes refuse a token that is far ahead of their clocks.
func (t *claim) floorOfRow() int64 {
	if t.r.Tick == nil {
		return t.floor
	}
	return max(t.floor, lease.ToMicros(t.r.Tick.NotBefore)-1)
}

// wanted has the reply that a majority must give in each phase.
var wanted = map[string]string{"row": "yes", "prepare": "promised", "accept": "accepted"}

func (t *claim) isSure(votes []vote, late bool) bool {
	if t.phase == "first" {
		return late || slices.ContainsFunc(votes, vote.hasAnswered)
	}
	silent := silentNodes(votes)
	word := wanted[t.phase]
	if word != "" {
		yes := countWords(votes, word)
		if yes >= t.store.majority { // IfHeld applies only if all rows are held, so the claim also waits for the other nodes
			return t.phase != "prepare" || t.r.Tick == nil || t.r.Tick.IfHeld == "" || silent == 0 || late
		}
		if yes+silent >= t.store.majority {
			return false
		}
	}
	switch t.phase {
	case "read":
		return silent == 0 || late && count(votes, vote.hasState) >= t.store.majority
	case "row":
		if !t.account {
			return true
		}
	default:
		return true
	}
	_, _, agree := newestRegister(votes) // if a majority has accepted the same register, the claim may end without writing it
	states := count(votes, vote.hasState)
	return agree >= t.store.majority || states >= t.store.majority && late || states+silent < t.store.majority
}

func (t *claim) handleVotes(votes []vote, sent time.Duration) (pause time.Duration, done bool) {
	if pause, done = t.handlePhase(votes, sent); done {
		t.answer(t.place, t.result)
	}
	return pause, done
}

func (t *claim) handlePhase(votes []vote, sent time.Duration) (time.Duration, bool) {
	t.floor = max(t.floor, floorOf(votes))
	switch t.phase {
	case "first":
		return t.tookFirst(votes)
	case "row":
		if done := t.endedEarly(votes); done {
			return 0, true
		}
		if countWords(votes, "yes") >= t.store.majority {
			return t.handleWon(votes, sent)
		}
		return t.handleLost(votes)
	case "read":
		if count(votes, vote.hasState) < t.store.majority {
			return t.retryIn("read")
		}
		return t.answerFromRead(votes)
	case "prepare":
		if countWords(votes, "promised") < t.store.majority {
			return t.retryIn("prepare")
		}
		return t.decideClaim(votes, t.viewOfVotes(votes))
	}
	return t.handleAccepted(votes, sent)
}

// endedEarly ends the claim if some replies allow no grant, whatever the other nodes answer.
func (t *claim) endedEarly(votes []vote) bool {
	switch {
	case countWords(votes, "dead") > 0:
		t.endVerdict(lease.Unknown, fmt.Errorf("lease id %s: %w", t.r.ID, lease.ErrReleased))
	case countWords(votes, "limit") > len(t.store.nodes)-t.store.majority || countWords(votes, "limit") > 0 && countWords(votes, "yes") < t.store.majority:
		n := slices.IndexFunc(votes, func(v vote) bool { return v.hasAnswered() && v.word == "limit" })
		t.result = lease.Failed(fmt.Errorf("lock %q asked for with %d slots has %d: %w", t.r.Lock, t.r.Slots, votes[n].asClaim().limit, lease.ErrLimit))
	default:
		return false
	}
	return true
}

func (t *claim) endVerdict(v lease.Verdict, err error) {
	t.result = lease.Result{Verdict: v}
	if err != nil {
		t.result.Err = fmt.Errorf("acquire %q: %w", t.r.Lock, err)
	}
}

// failWith ends the claim with the verdict unknown. If the client does not hold the lease, failWith also takes back the rows of the claim, because
// they would block other claims.
func (t *claim) failWith(err error) {
	t.endVerdict(lease.Unknown, redis.Unknown(err))
	t.answer(t.place, t.result)
	if t.store.cfg.HeldToken(t.r.ID) == 0 {
		t.dropRows()
	}
}

func (t *claim) retryIn(phase string) (time.Duration, bool) {
	t.phase = phase
	t.tries++
	return randomPause(t.tries), false
}

// answerFromRead ends the claim with the state that a majority reported, without a ballot, if the register does not have to change.
func (t *claim) answerFromRead(votes []vote) (time.Duration, bool) {
	value, _, agree := newestRegister(votes)
	g, err := rules.Read(value)
	if err != nil {
		t.endVerdict(lease.Unknown, err)
		return 0, true
	}
	before := g.Value()
	v := t.viewOfVotes(votes)
	t.orphans = len(g.Orphans) + t.suspect
	out := g.Claim(t.r, t.store.cfg.Owner, v)
	t.splitVote = out.Word == "held" && !v.Full
	switch {
	case out.Word == "held" && !v.Full && t.refused < mostRefused && (!t.r.Abstain || len(v.Rows) > 0): // a row may still be free
		return t.tryAnotherRow(votes, v)
	case g.Value() == before && agree < t.store.majority && t.unsettled < mostUnsettled: // another client is writing the register; a ballot would interrupt that client
		t.unsettled++
		return t.retryIn("read")
	case g.Value() != before || agree < t.store.majority:
		t.phase = "prepare"
		return 0, false
	}
	t.endWith(out)
	return 0, true
}

// tryAnotherRow continues a claim that got no row although a row may be free.
func (t *claim) tryAnotherRow(votes []vote, v rules.View) (time.Duration, bool) {
	slot, free := t.anotherSlot(votes, v.Rows)
	t.refused++
	if t.r.Abstain || !free { // the claims of other clients may end meanwhile
		return t.retryIn("read")
	}
	moved := slot != t.slot
	if t.slot = slot; moved && t.refused < 3 {
		t.phase = "first"
		return 0, false
	}
	return t.retryIn(t.retryPhase())
}

// decideClaim decides the claim by the newest register (the state of the lock) in the votes. A grant, or a register that no majority has, is written next.
func (t *claim) decideClaim(votes []vote, v rules.View) (time.Duration, bool) {
	value, _, agree := newestRegister(votes)
	g, err := rules.Read(value)
	if err != nil {
		t.endVerdict(lease.Unknown, err)
		return 0, true
	}
	before := g.Value()
	t.orphans = len(g.Orphans) + t.suspect
	switch t.phase { // a lease is dead once a majority has promised to refuse its row
	case "prepare":
		g.EndDead(intersection(t.shut, v.Shut), t.token)
	case "row":
		g.EndDead(intersection([]string{t.r.Adopt}, v.Shut), t.token)
	}
	t.out = g.Claim(t.r, t.store.cfg.Owner, v)
	if t.out.Word == "slot" {
		if slot, ok := t.anotherSlot(votes, v.Rows); ok && t.refused < mostRefused {
			t.slot = slot
			t.refused++
			return 0, false
		}
		v.Slot = -1
		g, _ = rules.Read(value)
		t.out = g.Claim(t.r, t.store.cfg.Owner, v)
	}
	if t.phase == "prepare" && t.out.Word == "held" && !v.Full && t.refused < mostRefused {
		t.refused++
		return t.retryIn("read")
	}
	t.splitVote = t.out.Word == "held" && !v.Full
	t.mine = t.out.Word == lease.OutcomeGranted
	t.value = g.Value()
	if !t.mine && t.value == before && agree >= t.store.majority {
		t.endWith(t.out)
		return 0, true
	}
	t.phase = "accept"
	return 0, false
}

func (t *claim) handleAccepted(votes []vote, sent time.Duration) (time.Duration, bool) {
	if countWords(votes, "accepted") < t.store.majority {
		if t.mine {
			return t.retryIn("row")
		}
		return t.retryIn("prepare")
	}
	if t.mine {
		t.endGranted(votes, sent, t.out)
	} else {
		t.endWith(t.out)
	}
	return 0, true
}
