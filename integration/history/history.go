// Package history records what the clients of one lock did and saw, and checks that it can be explained: that the
// operations, each put at one instant between its call and its return, are those of a lock with so many slots, and
// that fencing tokens grow.
//
// It knows nothing of the lock that it judges, nor of Redis. Its input is the observations of clients, never the data
// of a server, so it serves our lock and others alike. It is here and not in locking/locktest for two reasons:
// importers of that suite must not get a checker with it, and a history that is worth checking needs a real server
// and bad links.
package history

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Kind is the kind of an operation.
type Kind string

// The kinds of operations.
const (
	Acquire Kind = "acquire" // asks for a slot
	Release Kind = "release" // gives the slot of a hold back
	// Expire is no call: from Call on the holder relies on its hold no more, and by Return the slot is free. Its outcome is
	// that of the acquire.
	Expire Kind = "expire"
	Write  Kind = "write" // changes the resource that the lock guards, as a holder
)

// Outcome is the answer to a client.
type Outcome string

// The outcomes.
const (
	OK      Outcome = "ok"
	Refused Outcome = "refused" // all slots are held; nothing was held any more; the resource knew a greater token
	Unknown Outcome = "unknown" // it may have happened, or may yet
)

// Never is the return of an operation that may happen at any time after its call.
const Never = time.Duration(math.MaxInt64)

// Op is one operation of a history.
type Op struct {
	Client  string
	Kind    Kind
	Outcome Outcome
	Hold    int   // which grant it is about, from 1; 0 for an acquire that was refused
	Token   int64 // the hold's; 0 if the construction has none
	Slot    int   // the hold's; NoSlot if the construction has none
	// Call and Return are by one clock for the whole history.
	Call, Return time.Duration
}

// NoSlot is the slot of constructions that count holders instead of numbering them.
const NoSlot = -1

func (o Op) String() string {
	text := fmt.Sprintf("%v-%v %s: %s %s", o.Call, o.Return, o.Client, o.Kind, o.Outcome)
	if o.Return == Never {
		text = fmt.Sprintf("%v-... %s: %s %s", o.Call, o.Client, o.Kind, o.Outcome)
	}
	if o.Hold != 0 {
		text += " hold " + strconv.Itoa(o.Hold)
	}
	if o.Token != 0 {
		text += " token " + strconv.FormatInt(o.Token, 10)
	}
	if o.Kind == Acquire && o.Outcome == OK && o.Slot != NoSlot {
		text += " slot " + strconv.Itoa(o.Slot)
	}
	return text
}

// History is the operations on one lock. It is safe for concurrent use.
type History struct {
	rules rules
	clock func() time.Duration

	mu    sync.Mutex
	ops   []Op
	holds int
}

// New returns an empty history of a lock with so many slots. The clock must not be stepped.
func New(slots int, clock func() time.Duration) *History {
	return &History{rules: rules{slots: slots}, clock: clock}
}

// TokensBySlot has the tokens of grants that overlapped in time compared within each slot only, for locks that give no more than that: a
// quorum. Grants that did not overlap are compared in any case.
func (h *History) TokensBySlot() *History {
	h.rules.bySlot = true
	return h
}

// Hold is a grant, as its holder knows it.
type Hold struct {
	Client string
	Token  int64
	number int
}

// Pending is an operation that was called and has not returned.
type Pending struct {
	h  *History
	op Op
}

// Acquire begins one; Granted, Unanswered or End ends it.
func (h *History) Acquire(client string) Pending {
	return Pending{h, Op{Client: client, Kind: Acquire, Slot: NoSlot, Call: h.clock()}}
}

// Release begins one; End ends it.
func (h *History) Release(hold Hold) Pending { return h.of(Release, hold) }

// Write begins one; End ends it.
func (h *History) Write(hold Hold) Pending { return h.of(Write, hold) }

func (h *History) of(kind Kind, hold Hold) Pending {
	return Pending{h, Op{Client: hold.Client, Kind: kind, Hold: hold.number, Token: hold.Token, Slot: NoSlot, Call: h.clock()}}
}

// Granted ends an acquire: token and slot as they were told, 0 and NoSlot if the construction has none.
func (p Pending) Granted(token int64, slot int) Hold {
	now := p.h.clock()
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	p.h.holds++
	p.op.Outcome, p.op.Hold, p.op.Token, p.op.Slot, p.op.Return = OK, p.h.holds, token, slot, now
	p.h.ops = append(p.h.ops, p.op)
	return Hold{p.op.Client, token, p.h.holds}
}

// Unanswered ends an acquire that may have been granted, or may yet be. No client relies on that grant, and by gone
// its slot is free again; Never if nothing bounds that.
func (p Pending) Unanswered(gone time.Duration) {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	p.h.holds++
	p.op.Outcome, p.op.Hold, p.op.Return = Unknown, p.h.holds, gone
	end := Op{Client: p.op.Client, Kind: Expire, Outcome: Unknown, Hold: p.op.Hold, Slot: NoSlot, Call: p.op.Call, Return: gone}
	p.h.ops = append(p.h.ops, p.op, end)
}

// End ends an operation with the answer to the client.
func (p Pending) End(outcome Outcome) {
	p.op.Outcome, p.op.Return = outcome, p.h.clock()
	if outcome == Unknown {
		p.op.Return = Never
	}
	p.h.Add(p.op)
}

// Expires notes that the holder relies on its hold until from at most, and that its slot is free by gone, or Never.
func (h *History) Expires(hold Hold, from, gone time.Duration) {
	h.Add(Op{Client: hold.Client, Kind: Expire, Outcome: OK, Hold: hold.number, Token: hold.Token, Slot: NoSlot, Call: from, Return: gone})
}

// Add adds an operation as it is.
func (h *History) Add(op Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}

// Ops are all operations that have returned, by their calls.
func (h *History) Ops() []Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	ops := slices.Clone(h.ops)
	slices.SortStableFunc(ops, func(a, b Op) int { return int(a.Call - b.Call) })
	return ops
}

// Len is how many operations there are.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}
