package locking

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestQuorumFoldedLockDecidesAsTheWhole sends the same calls, at the same instants, to a node that folds locks and to one that has only the whole texts: they
// give the same verdicts, tokens and rows.
func TestQuorumFoldedLockDecidesAsTheWhole(t *testing.T) {
	const histories, steps = 150, 60
	verdicts, folded := map[string]int{}, 0
	inBubble(t, func(w *wire) {
		n := &nodeTwins{wire: w}
		for range n.nodes {
			other := w.another()
			defer other.server.Close()
			n.redis = append(n.redis, other.redis(-1))
		}
		for i, r := range n.redis {
			defer r.Close()
			r.HSet(w.Context(), "q", "state", votingState)
			n.nodes[i] = whole(i == 1)
		}
		for h := range histories {
			n.rand, n.lock, n.leases, n.calm = rand.New(rand.NewPCG(uint64(h), 2)), fmt.Sprint("x", h), nil, h%2 == 0
			for range steps {
				verdicts[n.step()]++
				if t.Failed() {
					t.Fatalf("history %d", h)
				}
				if n.redis[0].Type(w.Context(), n.lock).Val() == "string" {
					folded++
				}
			}
		}
	})
	for _, v := range []string{"yes", "held", "stale", "far", "limit", "dead", "dropped", "late", "seen", "renewed", "lost", "released", "gone", "told"} {
		if verdicts[v] == 0 {
			t.Errorf("no call was told %q: %v", v, verdicts)
		}
	}
	if folded < histories*steps/8 {
		t.Errorf("the lock was folded after %d steps of %d", folded, histories*steps)
	}
}

// whole are the scripts of a node, or those of one that does not fold locks: a claim is given its other arguments only.
func whole(only bool) quorumScripts {
	s := loadQuorumScripts()
	if only {
		claim := strings.Replace(luaQuorumFoldedClaim, "if free and", "if false and", 1)
		s.claim = newScript(claim, luaQuorumUnfold, luaQuorum, luaQuorumClaim)
		s.release = newScript(luaQuorumUnfold, luaQuorumRelease)
	}
	return s
}

// nodeTwins are both nodes.
type nodeTwins struct {
	*wire
	redis  []*redis.Client
	nodes  [2]quorumScripts
	rand   *rand.Rand
	lock   string
	leases []*nodeLease
	calm   bool // there is hardly anything but plain claims and their releases
	tokens int64
	again  bool // the lease was released before: where another has had the lock since, a node without tombstone does not know
}

// nodeLease is what a client knows of a lease.
type nodeLease struct {
	id       string
	token    int64
	asked    int64 // when it was first
	length   time.Duration
	had      bool  // it was granted
	narrow   bool  // and nothing was said of it since
	released int64 // when
}

func (n *nodeTwins) chance(in int) bool { return n.rand.IntN(in) == 0 }

func (n *nodeTwins) step() (verdict string) {
	pauses := []time.Duration{0, 0, time.Microsecond, time.Millisecond, time.Second, 5 * time.Second, 40 * time.Second}
	if n.chance(200) {
		pauses = []time.Duration{2 * time.Hour}
	}
	n.pass(pauses[n.rand.IntN(len(pauses))])
	if len(n.leases) == 0 || n.chance(3) {
		if len(n.leases) == 0 && n.chance(4) {
			return n.call(1, func(s quorumScripts) *script { return s.claim }, n.another(), 0, 2, time.Second.Microseconds(), 0, "1", n.token(), "", "o", "but,0,", "", "", tombstoneMicros, "0")
		}
		return n.claim(n.another())
	}
	if i := slices.IndexFunc(n.leases, func(l *nodeLease) bool { return l.had && l.released == 0 }); n.calm && i >= 0 && !n.chance(4) {
		return n.release(n.leases[i])
	}
	l := n.leases[max(n.rand.IntN(len(n.leases)), n.rand.IntN(len(n.leases)))]
	kind := n.rand.IntN(12)
	if n.calm && !n.chance(30) {
		kind = n.rand.IntN(7)
	}
	switch {
	case kind < 4 && l.released == 0 && l.had:
		return n.release(l)
	case kind == 7 && l.had && l.released == 0:
		l.narrow = false
		return n.call(1, func(s quorumScripts) *script { return s.renew }, l, 0, l.length.Microseconds(), l.token, "o", 0, 1)
	case kind == 5 && l.asked > n.now()-tombstoneMicros: // it comes twice
		return n.claim(l)
	case kind == 6 && l.released > n.now()-tombstoneMicros: // and this, while its tombstone stands
		return n.release(l)
	case kind == 4 && !l.had && !n.calm:
		l.narrow = false
		n.call(1, func(s quorumScripts) *script { return s.release }, l, -1, l.token, tombstoneMicros)
		n.pass(time.Duration(n.rand.IntN(4)) * time.Second)
		return n.claim(l) // what was dropped arrives
	case kind == 8:
		return n.call(1, func(s quorumScripts) *script { return s.stop }, l, 0, "enough")
	case kind == 9:
		return n.call(1, func(s quorumScripts) *script { return s.claim }, l, -1, 1, 0, 0, "", 0, "", "", "", "", "", 0, "1")
	case kind == 10 && n.chance(3):
		return n.call(1, func(s quorumScripts) *script { return s.accept }, n.another(), n.token(), "register", -1, 0, 0, "", 0, "")
	case kind == 10:
		return n.call(1, func(s quorumScripts) *script { return s.claim }, n.another(), 0, 2, time.Second.Microseconds(), 0, "1", n.token(), "", "o", "but,0,", "", "", tombstoneMicros, "0")
	case kind == 11 && !l.had: // another try
		l.token, l.asked = n.token(), n.now()
		return n.claim(l)
	}
	return n.claim(n.another())
}

const tombstoneMicros = 3_000_000

func (n *nodeTwins) now() int64 { return time.Now().UnixMicro() }

// token is mostly new.
func (n *nodeTwins) token() int64 {
	switch {
	case n.chance(20):
		return n.now() - 10_000_000
	case n.chance(30):
		return n.now() + 100_000_000
	}
	n.tokens = max(n.tokens+1, n.now())
	return n.tokens
}

func (n *nodeTwins) another() *nodeLease {
	l := &nodeLease{id: fmt.Sprint("id", len(n.leases)), token: n.token(), length: time.Duration(1+n.rand.IntN(30)) * time.Second, narrow: true}
	n.leases = append(n.leases, l)
	return l
}

func (n *nodeTwins) claim(l *nodeLease) string {
	if l.asked == 0 {
		l.asked = n.now()
	}
	n.again = l.released > 0
	defer func() { n.again = false }()
	late := int64(1)
	if n.chance(30) {
		late = -1
	}
	verdict := n.call(late, func(s quorumScripts) *script { return s.claim }, l, l.length.Microseconds(), l.token, "owner\nof two lines")
	l.had = l.had || verdict == "yes"
	return verdict
}

func (n *nodeTwins) release(l *nodeLease) string {
	if n.again = l.released > 0; !n.again {
		l.released = n.now()
	}
	defer func() { n.again = false }()
	args := []any{0, 0, tombstoneMicros}
	if l.narrow {
		args = append(args, foldedFor(Token(l.token), l.length, l.id))
	}
	return n.call(1, func(s quorumScripts) *script { return s.release }, l, args...)
}

// call makes the same call on both.
func (n *nodeTwins) call(seconds int64, which func(quorumScripts) *script, l *nodeLease, args ...any) (verdict string) {
	n.Helper()
	keys := []string{"q", n.lock, n.lock + ":dead:" + l.id, "index"}
	all := append([]any{l.id, n.now() + seconds*1e6, time.Hour.Microseconds()}, args...)
	var told [2]string
	for i, r := range n.redis {
		raw, err := r.Eval(n.Context(), which(n.nodes[i]).text, keys, all...).Slice()
		if err != nil {
			n.Fatal(err)
		}
		v := readVote(raw)
		told[i], verdict = v.word, v.word
		if of := map[string]string{"gone": "released", "dead": "refused", "stale": "refused", "held": "refused"}[v.word]; n.again && of != "" {
			told[i] = of
		}
		if v.word == "yes" || v.word == "seen" {
			told[i] = fmt.Sprint(v.word, " ", v.claim(), " ", v.floor)
		}
	}
	if told[0] != told[1] {
		n.Errorf("%v: folded %q, whole %q", all, told[0], told[1])
	}
	return verdict
}
