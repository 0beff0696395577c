package main

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// outcomes are the possible ends of ticks and runs.
var outcomes = []entry{
	{"running", "The run goes on."},
	{"ok", "The command ended with one of `ok_exit_codes`."},
	{"failed", "The command ended otherwise, or could not be started."},
	{"timeout", "The run took longer than its `timeout`, and was stopped."},
	{"canceled", "The run was stopped on purpose."},
	{"lost", "The lease was lost, so the run was stopped."},
	{"abandoned", "The lease of the run ended unrenewed: its replica died, or was cut off and has not written its own outcome yet."},
	{"skipped", "The job was paused, or had no free slot and waits for none."},
	{"missed", "The tick did not start by its deadline."},
}

// reason is why something had an outcome.
type reason struct{ word, of, meaning string }

var reasons = []reason{
	{"overlap", "skipped", "All slots of the job were held, or another tick waited for one."},
	{"paused", "skipped", "The job was paused."},
	{"down", "missed", "No replica was up for the job."},
	{"labels", "missed", "No replica was up with the labels of the job's `where`."},
	{"redis", "missed", "Redis did not answer, or could not decide: its data was lost or damaged, or a quorum was split."},
	{"overload", "missed", "The replica was too busy to ask in time, or stood still."},
	{"late", "missed", "The tick was claimed too late, for an unknown reason."},
	{"slots", "missed", "No slot of the job became free by the deadline."},
	{"pool", "missed", "No slot of the pool became free by the deadline."},
	{"capacity", "missed", "Every replica was full (`max_running`, `per_replica`), or could not start programs."},
	{"cannot_start", "missed", "No replica could start the program: a mount does not answer, or the program is open for writing."},
	{"user", "canceled", "By `cronclave cancel`. Also of `abandoned`, if the replica died first."},
	{"replaced", "canceled", "By a later tick (`overlap = \"replace\"`). Also of `abandoned`."},
	{"drain", "canceled", "The replica drained, and the run did not end in time."},
}

func reasonList() string {
	var list strings.Builder
	for _, r := range reasons {
		fmt.Fprintf(&list, "- `%s` (`%s`): %s\n", r.word, r.of, r.meaning)
	}
	return list.String()
}

// TestReasonsAreThose compares the documented reasons with those in the source.
func TestReasonsAreThose(t *testing.T) {
	t.Parallel()
	var found, known []string
	for _, dir := range []string{"../../scheduler", "../../scheduler/internal/agenda", "../../scheduler/run", "../../election"} {
		for _, file := range parsed(t, dir) {
			found = append(found, reasonsIn(file)...)
		}
	}
	slices.Sort(found)
	for _, r := range reasons {
		known = append(known, r.word)
		if !slices.Contains(words(outcomes), r.of) {
			t.Errorf("%s is of %s, which is no outcome", r.word, r.of)
		}
	}
	slices.Sort(known)
	if found = slices.Compact(found); !slices.Equal(found, known) {
		t.Errorf("reasons in the source: %q\nin the reference: %q", found, known)
	}
	var explained []string
	for _, file := range parsed(t, "../../internal/cluster") {
		explained = append(explained, keysOf(file, "reasonTexts")...)
	}
	if slices.Sort(explained); !slices.Equal(explained, known) {
		t.Errorf("reasons that why has a sentence for: %q\nin the reference: %q", explained, known)
	}
}

// keysOf are the keys of a map that a file declares.
func keysOf(file *ast.File, name string) (keys []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != name || len(spec.Values) == 0 {
			return true
		}
		for _, e := range spec.Values[0].(*ast.CompositeLit).Elts {
			key, _ := textOf(e.(*ast.KeyValueExpr).Key)
			keys = append(keys, key)
		}
		return false
	})
	return keys
}

// oneWord distinguishes a reason from the text of an error.
var oneWord = regexp.MustCompile(`^[a-z_]+$`)

// reasonsIn are the words that a file gives as reasons: to constants and fields with such a name, and behind an outcome.
func reasonsIn(file *ast.File) (found []string) {
	add := func(name string, e ast.Expr) {
		text, ok := textOf(e)
		name = strings.ToLower(name)
		if ok && oneWord.MatchString(text) && (name == "why" || strings.HasPrefix(name, "reason") || strings.HasPrefix(name, "stop")) {
			found = append(found, text)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i := range min(len(n.Names), len(n.Values)) {
				name := n.Names[i].Name
				if lastName(n.Type) == "Reason" {
					name = "reason"
				}
				add(name, n.Values[i])
			}
		case *ast.AssignStmt:
			for i := range min(len(n.Lhs), len(n.Rhs)) {
				add(lastName(n.Lhs[i]), n.Rhs[i])
			}
		case *ast.KeyValueExpr:
			add(lastName(n.Key), n.Value)
		case *ast.BinaryExpr: // string(Skipped) + " overlap"
			text, ok := textOf(n.Y)
			if call, isCall := n.X.(*ast.CallExpr); ok && isCall && lastName(call.Fun) == "string" && strings.HasPrefix(text, " ") {
				add("reason", &ast.BasicLit{Kind: n.Y.(*ast.BasicLit).Kind, Value: strings.Replace(n.Y.(*ast.BasicLit).Value, " ", "", 1)})
			}
		}
		return true
	})
	return found
}

// lastName is x of x and of y.x.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
