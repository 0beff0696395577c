package locking

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// change changes the register of a lock without a row: it prepares a ballot, and accepts. With look it looks first, and is done
// if there is nothing to change and all have the same.
type change struct {
	*quorum
	lock      string
	key       string // of the lock; "" leaves that to its name
	permanent bool
	id        string // of the lease that ends with it, or ""
	ends      bool
	look      bool
	everyone  bool // also nodes that do not vote count; only where all answer
	// edit changes the register; it may be called more than once, the last time counts.
	edit func(g *register, v view)
	// failed tells why there is no outcome; nil on success.
	failed error
	rows   int // how many nodes still had the row of what ended

	phase string // "look", "prepare" or "accept"
	token int64
	floor int64
	value string
	shut  []string
	tries int
}

func (t *change) name() string  { return t.lock }
func (t *change) toFirst() bool { return false }

func (t *change) next() (nodeCall, int) {
	if t.phase == "" {
		if t.phase = "prepare"; t.look {
			t.phase = "look"
		}
	}
	keys, all := t.keys(t.lock, t.id), len(t.nodes)
	if t.key != "" {
		keys[1], keys[2] = t.key, t.key+":dead:"+t.id
	}
	k := nodeCall{script: t.quorum.scripts.claim, keys: keys, id: t.id, idle: t.idleOf(t.permanent)}
	switch t.phase {
	case "look":
		k.args = []any{-1, 0, 0, 0, "", 0, "", "", "", flag(t.everyone), "", 0, "1"}
	case "prepare":
		t.token = t.propose(t.lock, t.floor)
		k.args = []any{-1, 0, 0, 0, "", t.token, "any", "", "", flag(t.everyone), strings.Join(t.shut, "\n"), t.tombstoneLife(), "1"}
	default:
		k.script, k.keys = t.quorum.scripts.accept, append(keys, t.indexKey())
		k.args = []any{t.token, t.value, -1, 0, 0, flag(t.ends), t.tombstoneLife(), flag(t.everyone)}
	}
	return k, all
}

// propose is a token above a floor, near the servers' time. It is above all that this client proposed for the lock before, too: a node
// tells a later try from an earlier one by their tokens, and the estimate of the time may step back.
func (q *quorum) propose(lock string, floor int64) int64 {
	local := q.cfg.Clock()
	now, _ := q.estimate(local)
	if own := q.seen.of(lock, q.cfg.Clock, q.cfg.Idle).floor; own < now+glitch {
		floor = max(floor, own)
	}
	token := max(now, floor+1)
	q.seen.learn(lock, knowledge{floor: token, seen: local}, q.cfg.Idle, now, true)
	return token
}

func (t *change) enough() int {
	if t.everyone {
		return len(t.nodes)
	}
	return t.majority
}

func (t *change) sure(votes []vote, late bool) bool {
	if t.phase == "look" {
		silent, told := silentNodes(votes), count(votes, vote.told)
		return silent == 0 || told >= t.enough() && late || told+silent < t.enough()
	}
	yes := words(votes, "promised", "accepted") // of which a phase has one
	return yes >= t.enough() || yes+silentNodes(votes) < t.enough()
}

func (t *change) take(votes []vote, _ time.Duration) (time.Duration, bool) {
	t.floor = max(t.floor, floorOf(votes))
	switch t.phase {
	case "look":
		return t.looked(votes)
	case "prepare":
		if words(votes, "promised") < t.enough() {
			return t.again()
		}
		t.edited(votes)
		t.phase = "accept"
		return 0, t.failed != nil
	}
	if words(votes, "accepted") < t.enough() {
		return t.again()
	}
	t.rows = count(votes, func(v vote) bool { return v.heard() && v.number(0) == 1 })
	return 0, true
}

func (t *change) looked(votes []vote) (time.Duration, bool) {
	if count(votes, vote.told) < t.enough() {
		return t.backOff(), false
	}
	_, _, agree := newest(votes)
	before, after := t.edited(votes)
	unchanged := before == after && len(t.shut) == 0
	if t.failed != nil || unchanged && agree >= t.enough() {
		return 0, true
	}
	if unchanged && t.tries < mostUnsettled { // another is writing it, whom a ballot of ours would only stop
		return t.backOff(), false
	}
	t.phase = "prepare"
	return 0, false
}

// edited applies the edit to the newest register that the votes tell.
func (t *change) edited(votes []vote) (before, after string) {
	g, err := readRegister(valueOf(votes))
	if err != nil {
		t.failed = fmt.Errorf("lock %q: %w", t.lock, err)
		return "", ""
	}
	before = g.value()
	seen := t.viewOf(g, votes)
	if t.phase == "prepare" { // what the promises have shut is dead
		g.mourn(intersection(t.shut, seen.shut), t.token)
	} else {
		t.shut = seen.shut
	}
	t.edit(g, seen)
	t.value = g.value()
	return before, t.value
}

// viewOf is what votes tell of the rows. Those runs are suspected of being dead that no majority can have a live row of.
func (q *quorum) viewOf(g *register, votes []vote) view {
	told := count(votes, vote.told)
	v := view{slot: -1, rows: liveRows(votes), unheard: len(q.nodes) - told}
	v.now, v.latest, _ = q.bounds(q.cfg.Clock())
	for id := range g.Runs {
		live := 0
		for _, row := range v.rows {
			if row.id == id {
				live += row.votes
			}
		}
		if told-live >= q.majority {
			v.shut = append(v.shut, id)
		}
	}
	return v
}

func intersection(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}

// again prepares once more, with a greater token: another's ballot came in between, or too few nodes have answered.
func (t *change) again() (time.Duration, bool) {
	t.phase = "prepare"
	return t.backOff(), false
}

// backOff is a random pause, so that those who disturb each other come apart.
func (t *change) backOff() time.Duration {
	t.tries++
	return randomPause(t.tries)
}

func randomPause(tries int) time.Duration {
	most := min(time.Millisecond<<min(tries, 6), 50*time.Millisecond)
	return most/4 + rand.N(most)
}

func (t *change) fail(err error) { t.failed = err }
