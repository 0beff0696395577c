package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/redis"
	"github.com/cronclave/cronclave/internal/lease/rules"
)

// mostUnsettled bounds the repeated reads of a register that no majority has accepted. Another client is probably writing it. After that many reads,
// that client counts as dead, and this client writes the register itself.
const mostUnsettled = 4

// A change edits the register of a lock without asking for a row. It prepares a ballot, and then writes the edited register under that ballot. If
// look is set, it first reads the register. If the edit changes nothing and a majority has the same ballot, the change ends after the read.
type change struct {
	store     *Store
	lock      string
	key       string // the Redis key of the lock; "" if it is derived from lock
	permanent bool
	id        string // the id of the lease that ends with the change, or ""
	ends      bool
	look      bool
	everyone  bool // all nodes must answer, and nodes that do not vote count, too
	// edit changes the register. It may be called several times. The result of the last call is used.
	edit func(g *rules.Register, v rules.View)
	// failed is the error of the change; nil on success. After an error, the register may or may not have changed.
	failed error
	rows   int // the number of nodes that still had a row of the ended lease

	phase string // "look", "prepare" or "accept"
	token int64
	floor int64
	value string
	shut  []string
	tries int
}

func (t *change) lockName() string { return t.lock }
func (t *change) toFirst() bool    { return false }

func (t *change) nextCall() (nodeCall, int) {
	if t.phase == "" {
		if t.phase = "prepare"; t.look {
			t.phase = "look"
		}
	}
	keys, all := t.store.nodeKeys(t.lock, t.id), len(t.store.nodes)
	if t.key != "" {
		keys[1], keys[2] = t.key, redis.Tombstone(t.key, t.id)
	}
	k := nodeCall{script: t.store.scripts.Claim, keys: keys, id: t.id, idle: t.store.idleOf(t.permanent)}
	switch t.phase {
	case "look":
		k.args = redis.NodeClaim{Request: &lease.Request{}, Slot: redis.NoSlot, Everyone: t.everyone, All: true}.Encode()
	case "prepare":
		t.token = t.store.proposeToken(t.lock, t.floor)
		k.args = redis.NodeClaim{Request: &lease.Request{}, Slot: redis.NoSlot, Token: t.token, Promise: redis.PromiseAny, Everyone: t.everyone, Shut: t.shut,
			TombstoneLife: redis.TombstoneLife(t.store.cfg.Timeout), All: true}.Encode()
	default:
		k.script, k.keys = t.store.scripts.Accept, append(keys, t.store.indexKey())
		k.args = redis.NodeAccept{Ballot: t.token, Value: t.value, Slot: redis.NoSlot, Ends: t.ends, TombstoneLife: redis.TombstoneLife(t.store.cfg.Timeout),
			Everyone: t.everyone}.Encode()
	}
	return k, all
}

// proposeToken returns a token above the floor, and not before the nodes' time. The token is also greater than the tokens that this client has
// proposed for the lock before: a node orders the tries for a lease by their tokens, and the estimate of the nodes' time may step back.
func (q *Store) proposeToken(lock string, floor int64) int64 {
	local := q.cfg.Clock()
	now, _ := q.Estimate(local)
	if own := q.cfg.Observed.Of(lock, q.cfg.Clock, q.cfg.Idle).Floor; own < now+lease.MinuteMicros {
		floor = max(floor, own)
	}
	token := max(now, floor+1)
	q.cfg.Observed.Learn(lock, lease.Observed{Floor: token, Seen: local}, q.cfg.Idle, now, true)
	return token
}

func (t *change) votesNeeded() int {
	if t.everyone {
		return len(t.store.nodes)
	}
	return t.store.majority
}

func (t *change) isSure(votes []vote, late bool) bool {
	if t.phase == "look" {
		silent, states := silentNodes(votes), count(votes, vote.hasState)
		return silent == 0 || states >= t.votesNeeded() && late || states+silent < t.votesNeeded()
	}
	yes := countWords(votes, "promised", "accepted") // a phase gets only one of these two replies
	return yes >= t.votesNeeded() || yes+silentNodes(votes) < t.votesNeeded()
}

func (t *change) handleVotes(votes []vote, _ time.Duration) (time.Duration, bool) {
	t.floor = max(t.floor, floorOf(votes))
	switch t.phase {
	case "look":
		return t.handleLook(votes)
	case "prepare":
		if countWords(votes, "promised") < t.votesNeeded() {
			return t.prepareAgain()
		}
		t.applyEdit(votes)
		t.phase = "accept"
		return 0, t.failed != nil
	}
	if countWords(votes, "accepted") < t.votesNeeded() {
		return t.prepareAgain()
	}
	t.rows = count(votes, func(v vote) bool { return v.hasAnswered() && v.Number(0) == 1 })
	return 0, true
}

func (t *change) handleLook(votes []vote) (time.Duration, bool) {
	if count(votes, vote.hasState) < t.votesNeeded() {
		return t.backOff(), false
	}
	_, _, agree := newestRegister(votes)
	before, after := t.applyEdit(votes)
	unchanged := before == after && len(t.shut) == 0
	if t.failed != nil || unchanged && agree >= t.votesNeeded() {
		return 0, true
	}
	if unchanged && t.tries < mostUnsettled { // another client is writing the register; a ballot would interrupt that client
		return t.backOff(), false
	}
	t.phase = "prepare"
	return 0, false
}

// applyEdit applies the edit to the newest register among the votes, and returns the register's value before and after the edit.
func (t *change) applyEdit(votes []vote) (before, after string) {
	g, err := rules.Read(valueOf(votes))
	if err != nil {
		t.failed = fmt.Errorf("lock %q: %w", t.lock, err)
		return "", ""
	}
	before = g.Value()
	seen := t.store.viewOf(g, votes)
	if t.phase == "prepare" { // a lease is dead once a majority has promised to refuse its row
		g.EndDead(intersection(t.shut, seen.Shut), t.token)
	} else {
		t.shut = seen.Shut
	}
	t.edit(g, seen)
	t.value = g.Value()
	return before, t.value
}

// viewOf returns the state of the rows in the votes. It lists a run in Shut if a majority of the nodes has no live row of that run.
func (q *Store) viewOf(g *rules.Register, votes []vote) rules.View {
	states := count(votes, vote.hasState)
	v := rules.View{Slot: -1, Rows: liveRows(votes), Unheard: len(q.nodes) - states}
	v.Now, v.Latest, _ = q.clockBounds(q.cfg.Clock())
	for id := range g.Runs {
		live := 0
		for _, row := range v.Rows {
			if row.ID == id {
				live += row.Votes
			}
		}
		if states-live >= q.majority {
			v.Shut = append(v.Shut, id)
		}
	}
	return v
}

func intersection(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}

// prepareAgain repeats the phase "prepare" with a greater token, because another ballot intervened or too few nodes have answered.
func (t *change) prepareAgain() (time.Duration, bool) {
	t.phase = "prepare"
	return t.backOff(), false
}

// backOff returns a random pause, so that clients that interrupt each other do not retry at the same time.
func (t *change) backOff() time.Duration {
	t.tries++
	return randomPause(t.tries)
}

func randomPause(tries int) time.Duration {
	most := min(time.Millisecond<<min(tries, 6), 50*time.Millisecond)
	return most/4 + rand.N(most)
}

func (t *change) failWith(err error) { t.failed = err }

// amendRun edits the run of a lease in the register. known is false if there is no such run. edit may be called several times.
func (q *Store) amendRun(ctx context.Context, row *lease.HeldRow, edit func(g *rules.Register, run *rules.Run, now int64)) (known bool, err error) {
	id := row.Request.ID
	t := &change{store: q, lock: row.Request.Lock, permanent: row.Request.Permanent, look: true}
	t.edit = func(g *rules.Register, v rules.View) {
		var run rules.Run
		if run, known = g.Runs[id]; known {
			edit(g, &run, v.Now)
			g.Runs[id] = run
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*q.cfg.Timeout)
	defer cancel()
	q.runTasks(ctx, []task{t})
	return known, t.failed
}
