package locking

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// claim is a request on its way to the same row on a majority of nodes and, if it is accounted for, into the register.
type claim struct {
	*quorum
	r       Request
	answer  Answer
	account bool   // it has a tick, or leaves an orphan: the register has to know
	older   *claim // the one before it on the same lock
	torn    bool   // it was told that the lock is held since its votes were split, though somebody may get a row the next moment

	phase      string // "first" (the row on the first node alone), "row", "read" (what the nodes know), "prepare" (a ballot without a row) or "accept"
	slot       int
	token      int64
	floor      int64
	tries      int
	firstTries int // in phase "first", since the floor of the first node has moved on
	refused    int // rounds in which it got no row although no other had a majority for it
	unsettled  int // rounds in which no register had a majority
	value      string
	out        verdict
	mine       bool // the verdict is a grant
	shut       []string
	suspect    int // runs that may be dead
	orphans    int
	placed     bool // nodes may have a row of it
	ballots    []int64
	mixed      bool     // nodes have rows of it from before this call, that do not agree
	keep       int64    // and this is the token of its run in the register, if it has one: those rows stay
	holders    []string // lease ids that were seen in the last round
}

func (q *quorum) newClaim(r Request) *claim {
	t := &claim{quorum: q, r: r, phase: "row", account: r.accounted()}
	now, _ := q.estimate(q.cfg.Clock())
	switch {
	case r.Abstain || r.Tick != nil && toMicros(r.Tick.NotBefore) > now: // it is to take no row, or too early for one
		t.phase = "read"
	case t.account && t.tight():
		t.phase = "first"
	}
	return t
}

func (t *claim) name() string { return t.r.Lock }

// toFirst: see [claim.tookFirst].
func (t *claim) toFirst() bool {
	t.begin()
	return t.phase == "first"
}

const (
	// mostRefused is after how many split votes a claim says that the lock is held.
	mostRefused = 16
	// mostUnsettled is how often a register is read again that some nodes have of one ballot and some of another: its writer may be on its way, or dead.
	mostUnsettled = 4
)

// begin is before the first round. A tick behind an older one that is still open takes no row that it might find meanwhile: P5.
func (t *claim) begin() {
	if o := t.older; o != nil && t.r.Tick != nil && o.r.Tick != nil && (o.torn || o.answer.Verdict == Unknown) {
		t.r.Abstain, t.phase = true, "read"
	}
	t.older = nil
}

func (t *claim) next() (nodeCall, int) {
	t.begin()
	k := nodeCall{script: t.quorum.scripts.claim, keys: t.keys(t.r.Lock, t.r.ID), id: t.r.ID, idle: t.idleOf(t.r.Permanent)}
	lease, delay, wave := t.r.Lease.Microseconds(), t.r.Delay.Microseconds(), len(t.nodes)
	switch t.phase {
	case "row", "first":
		promise := "row"
		if !t.account {
			promise, wave = "", t.majority
		}
		t.token, t.placed = t.propose(t.r.Lock, t.floorOfRow()), true
		k.args = []any{t.slot, t.r.Slots, lease, delay, flag(!t.r.AnyLimit), t.token, promise, t.cfg.Owner, t.moves(), "", t.r.Adopt,
			t.tombstoneLife(), flag(t.account || t.r.Slots > 1)}
		t.ballots = append(t.ballots, t.token)
	case "read":
		k.args = []any{-1, t.r.Slots, 0, 0, "", 0, "", "", "", "", "", 0, "1"}
	case "prepare":
		t.token = t.propose(t.r.Lock, t.floor)
		k.args = []any{-1, t.r.Slots, 0, 0, "", t.token, "any", "", "", "", strings.Join(t.shut, "\n"), t.tombstoneLife(), "1"}
	default:
		slot, token := -1, int64(0)
		if t.mine {
			slot, token = t.out.run.Slot, t.out.run.Token
		}
		k.script, k.keys = t.quorum.scripts.accept, append(k.keys, t.indexKey())
		k.args = []any{t.token, t.value, slot, lease, token, "", 0, ""}
	}
	k.patience = 1 + t.tries/8 // where all take their time none would get through
	return k, wave
}

// floorOfRow is the floor of a token that may be granted: no token is from before its tick. A ballot alone may be, since an early claim that announces its
// schedule would carry the floor to its tick else, and nodes refuse a token that is far ahead of their clocks.
func (t *claim) floorOfRow() int64 {
	if t.r.Tick == nil {
		return t.floor
	}
	return max(t.floor, toMicros(t.r.Tick.NotBefore)-1)
}

// wanted is the word that a majority has to say in a phase.
var wanted = map[string]string{"row": "yes", "prepare": "promised", "accept": "accepted"}

func (t *claim) sure(votes []vote, late bool) bool {
	if t.phase == "first" {
		return late || slices.ContainsFunc(votes, vote.heard)
	}
	silent := silentNodes(votes)
	word := wanted[t.phase]
	if word != "" {
		yes := words(votes, word)
		if yes >= t.majority { // who is to say that all rows are held needs to know more than that
			return t.phase != "prepare" || t.r.Tick == nil || t.r.Tick.IfHeld == "" || silent == 0 || late
		}
		if yes+silent >= t.majority {
			return false
		}
	}
	switch t.phase {
	case "read":
		return silent == 0 || late && count(votes, vote.told) >= t.majority
	case "row":
		if !t.account {
			return true
		}
	default:
		return true
	}
	_, _, agree := newest(votes) // a majority with the same ballot is an answer without a second phase
	told := count(votes, vote.told)
	return agree >= t.majority || told >= t.majority && late || told+silent < t.majority
}

func (t *claim) take(votes []vote, sent time.Duration) (time.Duration, bool) {
	t.floor = max(t.floor, floorOf(votes))
	switch t.phase {
	case "first":
		return t.tookFirst(votes)
	case "row":
		if done := t.ended(votes); done {
			return 0, true
		}
		if words(votes, "yes") >= t.majority {
			return t.won(votes, sent)
		}
		return t.lost(votes)
	case "read":
		if count(votes, vote.told) < t.majority {
			return t.retry("read")
		}
		return t.read(votes)
	case "prepare":
		if words(votes, "promised") < t.majority {
			return t.retry("prepare")
		}
		return t.decide(votes, t.view(votes))
	}
	return t.accepted(votes, sent)
}

// moves tells which rows of its id a claim does not leave as they are: those of its earlier tries; all but those of the run that the register
// knows, where votes that this call did not ask for disagree. (They were renewed by each call that found them, and none got a majority ever after.)
// Where no register knows the lease, all but those of a lease that is held: what is left of a claim before this one, a drop of it may still be on its way to.
func (t *claim) moves() string {
	if !t.account {
		held := Token(0)
		if l := t.keeper.live(t.r.ID); l != nil {
			held = l.token
		}
		return fmt.Sprintf("but,%d,", held)
	}
	if t.mixed {
		return fmt.Sprintf("but,%d,", t.keep)
	}
	if len(t.ballots) == 0 {
		return ""
	}
	text := []byte{','}
	for _, b := range t.ballots {
		text = append(strconv.AppendInt(text, b, 10), ',')
	}
	return string(text)
}

// ended deals with replies that end a request whoever else says what.
func (t *claim) ended(votes []vote) bool {
	switch {
	case words(votes, "dead") > 0:
		t.end(Unknown, fmt.Errorf("lease id %s: %w", t.r.ID, ErrReleased))
	case words(votes, "limit") > len(t.nodes)-t.majority || words(votes, "limit") > 0 && words(votes, "yes") < t.majority:
		n := slices.IndexFunc(votes, func(v vote) bool { return v.heard() && v.word == "limit" })
		t.answer = Answer{Verdict: Unknown, ID: t.r.ID, Err: fmt.Errorf("lock %q asked for with %d slots has %d: %w",
			t.r.Lock, t.r.Slots, votes[n].claim().limit, ErrLimit)}
	default:
		return false
	}
	return true
}

func (t *claim) end(v Verdict, err error) {
	t.answer = Answer{Verdict: v, ID: t.r.ID}
	if err != nil {
		t.answer.Err = fmt.Errorf("acquire %q: %w", t.r.Lock, err)
	}
}

// fail ends it without an outcome. Rows that it may have, and that cannot have been granted, are not in the way of others until it asks again.
func (t *claim) fail(err error) {
	t.end(Unknown, unknown(err))
	if t.phase != "accept" && t.keeper.live(t.r.ID) == nil {
		t.drop()
	}
}

// retry goes on with another phase after a pause.
func (t *claim) retry(phase string) (time.Duration, bool) {
	t.phase = phase
	t.tries++
	return randomPause(t.tries), false
}

// read answers from what a majority knows, without a ballot, if there is nothing to write.
func (t *claim) read(votes []vote) (time.Duration, bool) {
	value, _, agree := newest(votes)
	g, err := readRegister(value)
	if err != nil {
		t.end(Unknown, err)
		return 0, true
	}
	before := g.value()
	v := t.view(votes)
	t.orphans = len(g.Orphans) + t.suspect
	out := g.claim(t.r, t.cfg.Owner, v)
	t.torn = out.word == "held" && !v.full
	switch {
	case out.word == "held" && !v.full && t.refused < mostRefused && (!t.r.Abstain || len(v.rows) > 0): // they may turn out to be held, or there may be a row
		return t.look(votes, v)
	case g.value() == before && agree < t.majority && t.unsettled < mostUnsettled: // another is writing it, whom a ballot of ours would only stop
		t.unsettled++
		return t.retry("read")
	case g.value() != before || agree < t.majority:
		t.phase = "prepare"
		return 0, false
	}
	t.tell(out)
	return 0, true
}

// look goes on where neither a row was found free nor all are held for sure.
func (t *claim) look(votes []vote, v view) (time.Duration, bool) {
	slot, free := t.another(votes, v.rows)
	t.refused++
	if t.r.Abstain || !free { // some other's claim is on its way
		return t.retry("read")
	}
	moved := slot != t.slot
	if t.slot = slot; moved && t.refused < 3 {
		t.phase = "first"
		return 0, false
	}
	return t.retry(t.anew())
}

// decide applies the rules to what was promised, and goes on to write what they changed.
func (t *claim) decide(votes []vote, v view) (time.Duration, bool) {
	value, _, agree := newest(votes)
	g, err := readRegister(value)
	if err != nil {
		t.end(Unknown, err)
		return 0, true
	}
	before := g.value()
	t.orphans = len(g.Orphans) + t.suspect
	switch t.phase { // what these votes have shut is dead
	case "prepare":
		g.mourn(intersection(t.shut, v.shut), t.token)
	case "row":
		g.mourn(intersection([]string{t.r.Adopt}, v.shut), t.token)
	}
	t.out = g.claim(t.r, t.cfg.Owner, v)
	if t.out.word == "slot" {
		if slot, ok := t.another(votes, v.rows); ok && t.refused < mostRefused {
			t.slot = slot
			t.refused++
			return 0, false
		}
		v.slot = -1
		g, _ = readRegister(value)
		t.out = g.claim(t.r, t.cfg.Owner, v)
	}
	if t.phase == "prepare" && t.out.word == "held" && !v.full && t.refused < mostRefused {
		t.refused++
		return t.retry("read")
	}
	t.torn = t.out.word == "held" && !v.full
	t.mine = t.out.word == grantedOutcome
	t.value = g.value()
	if !t.mine && t.value == before && agree >= t.majority {
		t.tell(t.out)
		return 0, true
	}
	t.phase = "accept"
	return 0, false
}

// accepted deals with what became of the register.
func (t *claim) accepted(votes []vote, sent time.Duration) (time.Duration, bool) {
	if words(votes, "accepted") < t.majority {
		if t.mine {
			return t.retry("row")
		}
		return t.retry("prepare")
	}
	if t.mine {
		t.grant(votes, sent, t.out)
	} else {
		t.tell(t.out)
	}
	return 0, true
}
