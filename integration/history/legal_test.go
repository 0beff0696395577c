package history

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// lock is a correct lock that takes one step at a time, and records the observations of its clients.
type lock struct {
	*rapid.T
	history *History
	slots   int
	now     int
	token   int64
	told    int64 // newest token that a client knows
	fence   int64
	holds   []held // in use; those of unanswered acquires too
	stale   []held // ended without their holders' doing
}

type held struct {
	number, slot int
	token        int64
	unanswered   bool
}

// The checker accepts every history of a correct lock. Each operation happens between its call and its return,
// however they overlap.
func TestLegalHistoriesPass(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 3).Draw(t, "slots")
		l := &lock{T: t, slots: slots, history: New(slots, nil)}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			l.now += 10
			rapid.SampledFrom([]func(){l.acquire, l.acquire, l.release, l.expire, l.write, l.releaseLate}).Draw(t, "step")()
		}
		if faults := l.history.Check(patience); len(faults) > 0 {
			t.Fatalf("%v in %v", faults, l.history.Ops())
		}
		if faults := search(l.history.Ops(), rules{slots: slots}, patience); len(faults) > 0 {
			t.Fatalf("%v in %v", faults, l.history.Ops())
		}
		l.spoil()
	})
}

// spoil adds a grant that no client may be given: after all others, and with a token of before.
func (l *lock) spoil() {
	if l.told == 0 {
		return
	}
	for _, h := range l.holds {
		l.add(Op{Kind: Expire, Outcome: map[bool]Outcome{true: Unknown, false: OK}[h.unanswered], Hold: h.number, Token: h.token}, 0)
	}
	l.now += 1000
	l.add(Op{Kind: Acquire, Outcome: OK, Hold: -1, Token: rapid.Int64Range(1, l.told).Draw(l.T, "old token"), Slot: NoSlot}, 0)
	if len(l.history.Check(patience)) == 0 || len(search(l.history.Ops(), rules{slots: l.slots}, patience)) == 0 {
		l.Fatalf("no fault in %v", l.history.Ops())
	}
}

// add notes an operation that happens now; its call and return are up to so far from that.
func (l *lock) add(op Op, spread int) {
	op.Client = "c"
	op.Call = time.Duration(l.now - rapid.IntRange(0, spread).Draw(l.T, "before"))
	op.Return = time.Duration(l.now + rapid.IntRange(0, spread).Draw(l.T, "after"))
	if op.Outcome == Unknown || op.Kind == Expire && rapid.Bool().Draw(l.T, "any time") {
		op.Return = Never
	}
	l.history.Add(op)
}

const spread = 25

func (l *lock) acquire() {
	lost := rapid.IntRange(0, 4).Draw(l.T, "lost") == 0
	if len(l.holds) == l.slots && !lost {
		l.add(Op{Kind: Acquire, Outcome: Refused}, spread)
		return
	}
	l.token++
	h := held{number: int(l.token), slot: l.free(), token: l.token, unanswered: lost}
	op := Op{Kind: Acquire, Outcome: OK, Hold: h.number, Token: h.token, Slot: h.slot}
	if lost {
		op.Outcome, op.Token, op.Slot = Unknown, 0, NoSlot
		h.token = 0
	}
	l.told = max(l.told, h.token)
	l.add(op, spread)
	if len(l.holds) < l.slots {
		l.holds = append(l.holds, h)
	} else { // unanswered and not granted: its end may be at any time
		l.add(Op{Kind: Expire, Outcome: Unknown, Hold: h.number}, 0)
	}
}

// free returns the lowest free slot.
func (l *lock) free() int {
	used := map[int]bool{}
	for _, h := range l.holds {
		used[h.slot] = true
	}
	for slot := range l.slots {
		if !used[slot] {
			return slot
		}
	}
	return NoSlot
}

// draw takes one of the holds away, if there is one.
func (l *lock) draw(from *[]held) (held, bool) {
	if len(*from) == 0 {
		return held{}, false
	}
	i := rapid.IntRange(0, len(*from)-1).Draw(l.T, "which")
	h := (*from)[i]
	*from = append((*from)[:i:i], (*from)[i+1:]...)
	return h, true
}

func (l *lock) release() {
	h, ok := l.draw(&l.holds)
	if !ok {
		return
	}
	if h.unanswered {
		l.add(Op{Kind: Expire, Outcome: Unknown, Hold: h.number}, spread)
		return
	}
	l.add(Op{Kind: Release, Outcome: rapid.SampledFrom([]Outcome{OK, OK, Unknown}).Draw(l.T, "told"), Hold: h.number, Token: h.token}, spread)
}

func (l *lock) expire() {
	h, ok := l.draw(&l.holds)
	if !ok {
		return
	}
	outcome := OK
	if h.unanswered {
		outcome = Unknown
	} else {
		l.stale = append(l.stale, h)
	}
	l.add(Op{Kind: Expire, Outcome: outcome, Hold: h.number, Token: h.token}, spread)
}

func (l *lock) releaseLate() {
	if h, ok := l.draw(&l.stale); ok {
		l.add(Op{Kind: Release, Outcome: Refused, Hold: h.number, Token: h.token}, spread)
	}
}

// write is by a client that holds the lock, or did.
func (l *lock) write() {
	all := append(append([]held(nil), l.holds...), l.stale...)
	h, ok := l.draw(&all)
	if !ok || h.unanswered {
		return
	}
	outcome := OK
	if h.token < l.fence {
		outcome = Refused
	}
	l.fence = max(l.fence, h.token)
	l.add(Op{Kind: Write, Outcome: outcome, Hold: h.number, Token: h.token}, spread)
}
