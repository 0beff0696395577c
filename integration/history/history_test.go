package history

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const patience = time.Minute

// Hand-written operations: from..to in units that mean nothing.

func got(client string, from, to, hold int, token int64, slot int) Op {
	return Op{Client: client, Kind: Acquire, Outcome: OK, Hold: hold, Token: token, Slot: slot, Call: time.Duration(from), Return: time.Duration(to)}
}

func op(kind Kind, outcome Outcome, client string, from, to, hold int, token int64) Op {
	return Op{Client: client, Kind: kind, Outcome: outcome, Hold: hold, Token: token, Slot: NoSlot, Call: time.Duration(from), Return: time.Duration(to)}
}

func refused(client string, from, to int) Op { return op(Acquire, Refused, client, from, to, 0, 0) }
func freed(client string, from, to, hold int, token int64) Op {
	return op(Release, OK, client, from, to, hold, token)
}
func ends(client string, from, to, hold int, token int64) Op {
	return op(Expire, OK, client, from, to, hold, token)
}

const never = int(Never)

// unanswered is an acquire that may have been granted, until gone.
func unanswered(client string, from, gone, hold int) []Op {
	return []Op{op(Acquire, Unknown, client, from, gone, hold, 0), op(Expire, Unknown, client, from, gone, hold, 0)}
}

var histories = []struct {
	name   string
	slots  int
	ops    []Op
	broken []Rule
}{
	{"nothing", 1, nil, nil},
	{"one after the other", 1, []Op{got("a", 1, 2, 1, 10, 0), freed("a", 3, 4, 1, 10), got("b", 5, 6, 2, 11, 0)}, nil},
	{"granted while the release is under way", 1, []Op{got("a", 1, 2, 1, 10, 0), freed("a", 3, 9, 1, 10), got("b", 4, 5, 2, 11, 0)}, nil},
	{"refused while held", 1, []Op{got("a", 1, 2, 1, 10, 0), refused("b", 3, 4), freed("a", 5, 6, 1, 10)}, nil},
	{"two inside one", 1, []Op{got("a", 1, 2, 1, 10, 0), got("b", 3, 4, 2, 11, 0), freed("a", 5, 6, 1, 10)}, []Rule{Overlap}},
	{"two inside one, without tokens", 1, []Op{got("a", 1, 2, 1, 0, NoSlot), got("b", 3, 4, 2, 0, NoSlot)}, []Rule{Overlap}},
	{"granted together", 1, []Op{got("a", 1, 9, 1, 10, 0), got("b", 2, 8, 2, 11, 0), freed("a", 10, 11, 1, 10), freed("b", 10, 11, 2, 11)}, []Rule{Overlap}},
	{"two inside two", 2, []Op{got("a", 1, 2, 1, 10, 0), got("b", 3, 4, 2, 11, 1), refused("c", 5, 6)}, nil},
	{"three inside two", 2, []Op{got("a", 1, 2, 1, 10, 0), got("b", 3, 4, 2, 11, 1), got("c", 5, 6, 3, 12, NoSlot)}, []Rule{Overlap}},
	{"one slot twice", 2, []Op{got("a", 1, 2, 1, 10, 0), got("b", 3, 4, 2, 11, 0)}, []Rule{Order}},
	{"a slot that there is not", 2, []Op{got("a", 1, 2, 1, 10, 2)}, []Rule{Order}},
	{"refused although free", 1, []Op{got("a", 1, 2, 1, 10, 0), freed("a", 3, 4, 1, 10), refused("b", 5, 6)}, []Rule{Order}},
	{"refused with a slot free", 2, []Op{got("a", 1, 2, 1, 10, 0), refused("b", 3, 4)}, []Rule{Order}},

	{"tokens fall back", 1, []Op{got("a", 1, 2, 1, 10, 0), freed("a", 3, 4, 1, 10), got("b", 5, 6, 2, 9, 0)}, []Rule{Tokens}},
	{"a token twice", 1, []Op{got("a", 1, 2, 1, 10, 0), freed("a", 3, 4, 1, 10), got("b", 5, 6, 2, 10, 0)}, []Rule{Tokens}},
	{"a token twice at once", 2, []Op{got("a", 1, 5, 1, 10, 0), got("b", 1, 5, 2, 10, 1)}, []Rule{Tokens}},
	{"tokens of calls at once in either order", 2, []Op{got("a", 1, 5, 1, 11, 0), got("b", 2, 4, 2, 10, 1)}, nil},
	{"tokens fall back behind an expiry", 1, []Op{got("a", 1, 2, 1, 10, 0), ends("a", 3, never, 1, 10), got("b", 5, 6, 2, 9, 0)}, []Rule{Tokens}},

	{"expired and granted to another", 1, []Op{got("a", 1, 2, 1, 10, 0), ends("a", 5, never, 1, 10), refused("b", 6, 7), got("b", 8, 9, 2, 11, 0)}, nil},
	{"granted to another before the expiry", 1, []Op{got("a", 1, 2, 1, 10, 0), ends("a", 5, never, 1, 10), got("b", 3, 4, 2, 11, 0)}, []Rule{Overlap}},
	{"never free after the expiry", 1, []Op{got("a", 1, 2, 1, 10, 0), ends("a", 5, 7, 1, 10), refused("b", 8, 9)}, []Rule{Order}},
	{"released in time, then expired", 1, []Op{got("a", 1, 2, 1, 10, 0), freed("a", 3, 4, 1, 10), got("b", 5, 6, 2, 11, 0), ends("a", 7, never, 1, 10), refused("c", 8, 9)}, nil},

	{"release of what is another's", 1, []Op{got("a", 1, 2, 1, 10, 0), ends("a", 3, never, 1, 10), got("b", 4, 5, 2, 11, 0), freed("a", 6, 7, 1, 10)}, []Rule{Order}},
	{"release of what was another's meanwhile", 1, []Op{got("a", 1, 2, 1, 10, 0), ends("a", 3, never, 1, 10), got("b", 4, 5, 2, 11, 0), freed("b", 6, 7, 2, 11), freed("a", 8, 9, 1, 10)}, []Rule{Order}},
	{"late release told that all is over", 1, []Op{got("a", 1, 2, 1, 10, 0), ends("a", 3, never, 1, 10), got("b", 4, 5, 2, 11, 0), op(Release, Refused, "a", 6, 7, 1, 10), refused("c", 8, 9)}, nil},
	{"release told that all is over, and it was not", 1, []Op{got("a", 1, 2, 1, 10, 0), op(Release, Refused, "a", 3, 4, 1, 10)}, []Rule{Order}},
	{"release twice", 1, []Op{got("a", 1, 2, 1, 10, 0), freed("a", 3, 4, 1, 10), freed("a", 5, 6, 1, 10)}, []Rule{Order}},
	{"lost release that was done", 1, []Op{got("a", 1, 2, 1, 10, 0), op(Release, Unknown, "a", 3, never, 1, 10), got("b", 5, 6, 2, 11, 0)}, nil},
	{"lost release that was not done", 1, []Op{got("a", 1, 2, 1, 10, 0), op(Release, Unknown, "a", 3, never, 1, 10), refused("b", 5, 6), refused("b", 7, 8)}, nil},
	{"lost release that was done, then undone", 1, []Op{got("a", 1, 2, 1, 10, 0), op(Release, Unknown, "a", 3, never, 1, 10), got("b", 5, 6, 2, 11, 0), freed("b", 7, 8, 2, 11), refused("b", 9, 10)}, []Rule{Order}},

	{"unanswered, and nothing came of it", 1, append(unanswered("a", 1, never, 1), got("b", 5, 6, 2, 10, 0)), nil},
	{"unanswered, and granted", 1, append(unanswered("a", 1, never, 1), refused("b", 5, 6), refused("b", 7, 8)), nil},
	{"unanswered, granted, and given back", 1, append(unanswered("a", 1, never, 1), refused("b", 5, 6), got("b", 7, 8, 2, 10, 0)), nil},
	{"unanswered while held, then granted late", 1, append(unanswered("a", 3, never, 9), got("b", 1, 2, 1, 10, 0), freed("b", 4, 5, 1, 10), refused("c", 6, 7), got("c", 8, 9, 2, 11, 0)), nil},
	{"unanswered, granted, given back, and refused again", 1, append(unanswered("a", 1, never, 1), refused("b", 5, 6), got("b", 7, 8, 2, 10, 0), freed("b", 9, 10, 2, 10), refused("b", 11, 12)), []Rule{Order}},
	{"unanswered holds no two slots", 2, append(unanswered("a", 1, never, 1), refused("b", 5, 6)), []Rule{Order}},
	{"unanswered must be gone by then", 1, append(unanswered("a", 1, 6, 1), refused("b", 4, 5), refused("b", 7, 8)), []Rule{Order}},
	{"unanswered holds nothing before its call", 1, append(unanswered("a", 3, never, 1), refused("b", 1, 2)), []Rule{Order}},

	{"writes in order", 1, []Op{got("a", 1, 2, 1, 10, 0), op(Write, OK, "a", 3, 4, 1, 10), ends("a", 5, never, 1, 10), got("b", 6, 7, 2, 11, 0), op(Write, OK, "b", 8, 9, 2, 11)}, nil},
	{"stale write refused", 1, []Op{got("a", 1, 2, 1, 10, 0), ends("a", 3, never, 1, 10), got("b", 4, 5, 2, 11, 0), op(Write, OK, "b", 6, 7, 2, 11), op(Write, Refused, "a", 8, 9, 1, 10)}, nil},
	{"stale write accepted", 1, []Op{got("a", 1, 2, 1, 10, 0), ends("a", 3, never, 1, 10), got("b", 4, 5, 2, 11, 0), op(Write, OK, "b", 6, 7, 2, 11), op(Write, OK, "a", 8, 9, 1, 10)}, []Rule{Order}},
	{"rightful write refused", 1, []Op{got("a", 1, 2, 1, 10, 0), op(Write, Refused, "a", 3, 4, 1, 10)}, []Rule{Order}},
	{"stale write without a token", 1, []Op{got("a", 1, 2, 1, 0, 0), ends("a", 3, never, 1, 0), got("b", 4, 5, 2, 0, 0), op(Write, OK, "a", 8, 9, 1, 0)}, []Rule{Order}},
}

// The search agrees with Check on histories that Check judges without it.
func TestHistories(t *testing.T) {
	t.Parallel()
	for _, tc := range histories {
		t.Run(tc.name, func(t *testing.T) {
			h := New(tc.slots, nil)
			for _, op := range tc.ops {
				h.Add(op)
			}
			faults := h.Check(patience)
			if rules := Broken(faults); !slices.Equal(rules, tc.broken) {
				t.Errorf("broken: %q, want %q; faults: %q", rules, tc.broken, faults)
			}
			var want []Rule
			if tc.broken != nil {
				want = []Rule{Order}
			}
			if rules := Broken(search(h.Ops(), rules{slots: tc.slots}, patience)); !slices.Equal(rules, want) {
				t.Errorf("the search finds %q broken, want %q", rules, want)
			}
		})
	}
}

// A greater token in another slot shows that this slot was not free before it. The test has grants in two slots, of
// which the earlier has the greater token.
func TestTokensBySlot(t *testing.T) {
	t.Parallel()
	history := func(slotOfB int) *History {
		h := New(2, nil)
		for _, op := range []Op{got("a", 1, 2, 1, 10, 0), got("b", 3, 6, 2, 13, slotOfB), got("c", 4, 20, 3, 12, 1-slotOfB), freed("a", 7, 8, 1, 10)} {
			h.Add(op)
		}
		return h
	}
	for _, tc := range []struct {
		name   string
		h      *History
		broken []Rule
	}{
		{"one sequence", history(1), []Rule{Order}},
		{"a sequence for each slot", history(1).TokensBySlot(), nil},
		{"a slot that is held", history(0).TokensBySlot(), []Rule{Order}},
	} {
		if rules := Broken(tc.h.Check(patience)); !slices.Equal(rules, tc.broken) {
			t.Errorf("%s: broken: %q, want %q", tc.name, rules, tc.broken)
		}
	}
	h := New(1, nil).TokensBySlot()
	for _, op := range []Op{got("a", 1, 5, 1, 13, 0), freed("a", 6, 7, 1, 13), got("b", 4, 9, 2, 12, 0)} {
		h.Add(op)
	}
	if rules := Broken(h.Check(patience)); !slices.Equal(rules, []Rule{Order}) {
		t.Errorf("a smaller token in the same slot breaks %q", rules)
	}
}

// The recorder records a history as it happened. Its clock ticks at each look.
func TestRecorder(t *testing.T) {
	t.Parallel()
	now := time.Duration(0)
	h := New(1, func() time.Duration { now++; return now })
	a := h.Acquire("a").Granted(10, 0)
	h.Acquire("b").End(Refused)
	h.Acquire("c").Unanswered(Never)
	h.Write(a).End(OK)
	h.Expires(a, now, Never)
	b := h.Acquire("b").Granted(11, 0)
	h.Write(b).End(OK)
	h.Write(a).End(Refused)
	h.Release(a).End(Refused)
	h.Release(b).End(Unknown)
	h.Acquire("c").Granted(12, 0)
	if faults := h.Check(patience); len(faults) > 0 {
		t.Errorf("faults: %q", faults)
	}
	if ops := h.Ops(); len(ops) != h.Len() || ops[0].Return != 2 || ops[0].Slot != 0 {
		t.Errorf("operations: %v", ops)
	}
	h.Write(b).End(OK)
	h.Write(a).End(OK)
	faults := h.Check(patience)
	if len(faults) != 1 || !strings.Contains(faults[0].Detail, "a: write ok hold 1 token 10") {
		t.Errorf("faults after a stale write: %q", faults)
	}
}

// A history without a verdict fails: no verdict is not a good verdict.
func TestWhatIsNotKnownFails(t *testing.T) {
	t.Parallel()
	h := New(1, nil)
	for i := range MaxOps/2 + 1 {
		h.Add(got("a", 4*i, 4*i+1, i+1, int64(i+1), 0))
		h.Add(freed("a", 4*i+2, 4*i+3, i+1, int64(i+1)))
	}
	if rules := Broken(h.Check(patience)); !slices.Equal(rules, []Rule{Undecided}) {
		t.Errorf("a history that is too long breaks %q", rules)
	}
	short := New(1, nil)
	for _, op := range h.Ops()[:5000] {
		short.Add(op)
	}
	if rules := Broken(short.Check(time.Nanosecond)); !slices.Equal(rules, []Rule{Undecided}) {
		t.Errorf("a search without time ends with %q", rules)
	}
}
