package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Rule is a rule that a history may break.
type Rule string

// The rules. Overlap and Tokens are found by looking at the operations one by one; Order is the whole, found by search. A history
// that overlaps, or whose tokens fall back, has no order either.
const (
	Overlap   Rule = "overlap"   // more holders at one instant than slots
	Tokens    Rule = "tokens"    // a grant that returned before another was called has no smaller token
	Order     Rule = "order"     // no order of the operations explains what the clients saw
	Undecided Rule = "undecided" // the search did not end in time, or the history is too long for it
)

// Fault is one broken rule.
type Fault struct {
	Rule   Rule
	Detail string
}

func (f Fault) String() string { return string(f.Rule) + ": " + f.Detail }

// MaxOps bounds a history: the search keeps a bit for each operation in each state it has been in. Longer ones are
// recorded in pieces, each on a lock of its own.
const MaxOps = 60_000

// Check returns the faults of the history; none if all is well. A history without a verdict is a fault too. The
// search for an order may take as long as patience. It is left out where certainly no order exists, since such
// searches are the longest.
func (h *History) Check(patience time.Duration) []Fault {
	ops := h.Ops()
	if faults := slices.Concat(overlaps(ops, h.rules.slots), fallBacks(ops)); len(faults) > 0 {
		return faults
	}
	return search(ops, h.rules, patience)
}

// search looks for an order of the operations that the model could have done.
func search(ops []Op, rules rules, patience time.Duration) []Fault {
	if len(ops) > MaxOps {
		return []Fault{{Undecided, fmt.Sprintf("%d operations, more than %d", len(ops), MaxOps)}}
	}
	switch porcupine.CheckOperationsTimeout(model(rules), operations(ops), patience) {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return []Fault{{Order, unexplained(ops, rules)}}
	default:
		return []Fault{{Undecided, fmt.Sprintf("no answer for %d operations within %v", len(ops), patience)}}
	}
}

// Broken returns the rules that the faults are about, each once.
func Broken(faults []Fault) []Rule {
	var rules []Rule
	for _, f := range faults {
		if !slices.Contains(rules, f.Rule) {
			rules = append(rules, f.Rule)
		}
	}
	return rules
}

func operations(ops []Op) []porcupine.Operation {
	all := make([]porcupine.Operation, len(ops))
	for i, op := range ops {
		all[i] = porcupine.Operation{Input: op, Call: int64(op.Call), Return: int64(op.Return)}
	}
	return all
}

// overlaps sweeps over the times in which holds were held for certain: from the return of the acquire until the first call that may
// have ended it. It reports each time at which there are more than ever before.
func overlaps(ops []Op, slots int) []Fault {
	type edge struct {
		at   time.Duration
		op   Op
		ends bool
	}
	ends := map[int]time.Duration{}
	for _, op := range ops {
		if at, ok := ends[op.Hold]; (op.Kind == Release || op.Kind == Expire) && (!ok || op.Call < at) {
			ends[op.Hold] = op.Call
		}
	}
	var edges []edge
	for _, op := range ops {
		if op.Kind != Acquire || op.Outcome != OK {
			continue
		}
		end, ok := ends[op.Hold]
		if !ok {
			end = Never
		}
		if op.Return < end {
			edges = append(edges, edge{op.Return, op, false}, edge{end, op, true})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(max(-1, min(1, a.at-b.at)))
		}
		return map[bool]int{true: -1, false: 1}[a.ends] // touching is not overlapping
	})
	var faults []Fault
	held, most := map[int]Op{}, slots
	for _, e := range edges {
		if e.ends {
			delete(held, e.op.Hold)
			continue
		}
		held[e.op.Hold] = e.op
		if len(held) > most {
			most = len(held)
			faults = append(faults, Fault{Overlap, fmt.Sprintf("%d inside where %d are allowed, with %v", most, slots, e.op)})
		}
	}
	return faults
}

// fallBacks demands that tokens grow in real time: that a grant which was called after the return of another has the greater one,
// and that no two are equal.
func fallBacks(ops []Op) []Fault {
	var grants []Op
	for _, op := range ops {
		if op.Kind == Acquire && op.Outcome == OK && op.Token != 0 {
			grants = append(grants, op)
		}
	}
	returned := slices.SortedStableFunc(slices.Values(grants), func(a, b Op) int { return int(a.Return - b.Return) })
	var faults []Fault
	newest := Op{Token: math.MinInt64}
	seen := map[int64]Op{}
	for _, g := range grants { // by their calls
		for len(returned) > 0 && returned[0].Return < g.Call {
			if returned[0].Token > newest.Token {
				newest = returned[0]
			}
			returned = returned[1:]
		}
		if same, ok := seen[g.Token]; ok {
			faults = append(faults, Fault{Tokens, fmt.Sprintf("one token twice: %v; %v", same, g)})
		} else if g.Token < newest.Token {
			faults = append(faults, Fault{Tokens, fmt.Sprintf("%v; after %v", g, newest)})
		}
		seen[g.Token] = g
	}
	return faults
}

// unexplained describes where the longest attempt at an order ended: the first operations that had no place in it.
func unexplained(ops []Op, rules rules) string {
	const patience, show = 10 * time.Second, 5
	_, info := porcupine.CheckOperationsVerbose(model(rules), operations(ops), patience)
	var longest []porcupine.Operation
	for _, attempt := range info.PartialLinearizationsOperations()[0] {
		if len(attempt) > len(longest) {
			longest = attempt
		}
	}
	placed := map[string]int{} // equal texts are equal operations
	for _, o := range longest {
		placed[o.Input.(Op).String()]++
	}
	var rest []string
	for _, op := range ops {
		text := op.String()
		if placed[text] > 0 {
			placed[text]--
		} else if rest = append(rest, text); len(rest) == show {
			break
		}
	}
	return fmt.Sprintf("after %d of %d operations there is no place for one of\n\t%s", len(longest), len(ops), strings.Join(rest, "\n\t"))
}
