package mutants

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

var pagePath = flag.String("page", "", "a file to write the page of evidence to")

// root is the repository, seen from this package.
const root = "../.."

// promise is an item of the list in docs/guarantees.md.
type promise struct{ id, title, headline string }

// proof is a test, or a theorem of the conformance suite, that names its promises.
type proof struct {
	dir, name string
	promises  []string
	sentence  string // the promise that it shows, in words
}

// evidence is everything that the page of evidence lists.
type evidence struct {
	promises []promise
	proofs   []proof
	mutants  []mutant
	names    map[string][]string // package directory -> its tests; the theorems have the key locktest
}

const locktest, locking = "locking/locktest", "locking"

// Each promise has tests, the headers of tests and mutants name promises that exist, and each mutant names a test that exists. With -page it writes the page of evidence.
func TestEvidence(t *testing.T) {
	t.Parallel()
	guarantees, err := os.ReadFile(root + "/docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	e, err := collect(root, promisesOf(string(guarantees)))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range e.faults() {
		t.Error(fault)
	}
	if *pagePath == "" {
		return
	}
	if err := os.WriteFile(*pagePath, e.page(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The check of the evidence finds each kind of fault.
func TestEvidenceFindsFaults(t *testing.T) {
	t.Parallel()
	healthy := func() evidence {
		return evidence{
			promises: []promise{{"P1", "Once", "TestOnce"}},
			proofs:   []proof{{"a", "TestOnce", []string{"P1"}, "A tick runs once."}},
			mutants:  []mutant{{name: "m", promise: "P1", test: []string{"test", "./a", "-run", "TestOn"}}},
			names:    map[string][]string{"a": {"TestOnce"}, locking: {"TestConformance"}, locktest: {"TickIsGrantedOnce"}},
		}
	}
	if e := healthy(); len(e.faults()) != 0 {
		t.Fatalf("healthy evidence: %q", e.faults())
	}
	for _, tc := range []struct {
		spoil func(*evidence)
		want  string
	}{
		{func(e *evidence) { e.promises = append(e.promises, promise{"P2", "Never early", "TestOnce"}) }, "P2: no test"},
		{func(e *evidence) { e.promises[0].headline = "TestTwice" }, "P1: the headline test TestTwice does not name it"},
		{func(e *evidence) { e.proofs[0].promises = []string{"P1", "P7"} }, "TestOnce: docs/guarantees.md does not define P7"},
		{func(e *evidence) { e.mutants[0].promise = "P7" }, "m.patch: docs/guarantees.md does not define P7"},
		{func(e *evidence) { e.mutants[0].test[3] = "TestOff" }, "m.patch: ./a has no test TestOff"},
		{func(e *evidence) {
			e.mutants[0].test = []string{"test", "./" + locking, "-run", "TestConformance/Tock"}
		}, "m.patch: ./locking has no test TestConformance/Tock"},
		{func(e *evidence) {
			e.names["a"] = append(e.names["a"], "TestTwice")
			e.mutants[0].test[3] = "TestTwice"
		}, "m.patch: no test of ./a -run TestTwice names P1"},
	} {
		e := healthy()
		tc.spoil(&e)
		if got := strings.Join(e.faults(), "\n"); !strings.Contains(got, tc.want) {
			t.Errorf("faults %q, want %q", got, tc.want)
		}
	}
}

// Promises are read from the last lines of doc comments. The file has a test, a theorem, and two misplaced headers.
func TestPromisesAreReadFromComments(t *testing.T) {
	t.Parallel()
	const source = `package a

// TestOnce runs a tick once. More about it.
// Promise: P1, P5
func TestOnce(t *testing.T) {}

// TestPlain names no promise.
func TestPlain(t *testing.T) {}

// helper is no test.
// Promise: P2
func helper() {}

var all = []theorem{
	{"ReleasedIDOfAFanOutStaysDead", helper, 0}, // Promise: P3
	{"Other", helper, 0},
}

// Promise: P4
`
	path := filepath.Join(t.TempDir(), "a_test.go")
	write(t, path, source)
	e := evidence{names: map[string][]string{}}
	err := e.read(path, "a")
	for _, want := range []string{"a_test.go:11", "a_test.go:19"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s in it", err, want)
		}
	}
	want := []proof{
		{"a", "TestOnce", []string{"P1", "P5"}, "`TestOnce` runs a tick once."},
		{locktest, "ReleasedIDOfAFanOutStaysDead", []string{"P3"}, "`/ReleasedIDOfAFanOutStaysDead`: released ID of a fan out stays dead."},
	}
	if !slices.EqualFunc(e.proofs, want, func(a, b proof) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Errorf("proofs %+v", e.proofs)
	}
	if got := fmt.Sprint(e.names); got != "map[a:[TestOnce TestPlain] locking/locktest:[ReleasedIDOfAFanOutStaysDead Other]]" {
		t.Errorf("names %s", got)
	}
}

var promiseRow = regexp.MustCompile("(?m)^- (P[1-9]|[a-z]+) \\*\\*([^*]+?)\\.?\\*\\*.* `(\\w+)`$")

// promisesOf reads the promises that docs/guarantees.md defines, in its order.
func promisesOf(guarantees string) []promise {
	var all []promise
	for _, m := range promiseRow.FindAllStringSubmatch(guarantees, -1) {
		all = append(all, promise{m[1], m[2], m[3]})
	}
	return all
}

// collect parses every test file, the conformance suite and every mutant of a repository.
func collect(root string, promises []promise) (evidence, error) {
	e := evidence{promises: promises, names: map[string][]string{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		dir = filepath.ToSlash(dir)
		switch {
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"), dir == locktest && strings.HasSuffix(path, ".go"):
			return e.read(path, dir)
		case strings.HasSuffix(path, ".patch"):
			m, err := parseMutant(path)
			e.mutants = append(e.mutants, m)
			return err
		}
		return nil
	})
	slices.SortFunc(e.proofs, func(a, b proof) int { return cmp.Or(cmp.Compare(a.dir, b.dir), cmp.Compare(a.name, b.name)) })
	slices.SortFunc(e.mutants, func(a, b mutant) int { return cmp.Compare(a.name, b.name) })
	return e, err
}

// read adds the tests and theorems of one file. A header that belongs to neither is an error.
func (e *evidence) read(path, dir string) error {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	headers := map[int][]string{} // line -> promises
	for _, group := range f.Comments {
		for _, c := range group.List {
			if v, ok := strings.CutPrefix(c.Text, "// Promise: "); ok {
				headers[files.Position(c.Pos()).Line] = strings.Split(v, ", ")
			}
		}
	}
	take := func(line int) []string {
		p := headers[line]
		delete(headers, line)
		return p
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if name := n.Name.Name; n.Recv == nil && isTest(name) {
				e.names[dir] = append(e.names[dir], name)
				if promises := take(files.Position(n.Pos()).Line - 1); promises != nil {
					e.proofs = append(e.proofs, proof{dir, name, promises, sentenceOf(name, n.Doc.Text())})
				}
			}
		case *ast.CompositeLit:
			for _, name := range theorems(n) {
				text, err := strconv.Unquote(name.Value)
				if err != nil {
					continue
				}
				e.names[locktest] = append(e.names[locktest], text)
				if promises := take(files.Position(name.Pos()).Line); promises != nil {
					e.proofs = append(e.proofs, proof{locktest, text, promises, "`/" + text + "`: " + words(text) + "."})
				}
			}
		}
		return true
	})
	var lost []string
	for line := range headers {
		lost = append(lost, fmt.Sprintf("%s:%d: this Promise is not the last line of a test's doc comment, nor beside a theorem", path, line))
	}
	if lost != nil {
		slices.Sort(lost)
		return fmt.Errorf("%s", strings.Join(lost, "\n"))
	}
	return nil
}

func isTest(name string) bool {
	return strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Benchmark")
}

// theorems are the names in a literal of type []theorem.
func theorems(n *ast.CompositeLit) []*ast.BasicLit {
	list, ok := n.Type.(*ast.ArrayType)
	if !ok {
		return nil
	}
	if of, ok := list.Elt.(*ast.Ident); !ok || of.Name != "theorem" {
		return nil
	}
	var names []*ast.BasicLit
	for _, elt := range n.Elts {
		if row, ok := elt.(*ast.CompositeLit); ok && len(row.Elts) > 0 {
			if name, ok := row.Elts[0].(*ast.BasicLit); ok && name.Kind == token.STRING {
				names = append(names, name)
			}
		}
	}
	return names
}

// sentenceOf is the first sentence of a doc comment, with the test's name in code.
func sentenceOf(name, comment string) string {
	comment = comment[:strings.LastIndex(comment, "Promise:")]
	text := strings.TrimSpace(new(doc.Package).Synopsis(comment))
	if after, ok := strings.CutPrefix(text, name); ok {
		return "`" + name + "`" + after
	}
	return "`" + name + "`: " + text
}

// words splits the name of a theorem.
func words(name string) string {
	var all []string
	runes := []rune(name)
	start := 0
	for i := 1; i <= len(runes); i++ {
		if i < len(runes) && !(unicode.IsUpper(runes[i]) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))) {
			continue
		}
		word := string(runes[start:i])
		if len(word) == 1 || word != strings.ToUpper(word) {
			word = strings.ToLower(word)
		}
		all = append(all, word)
		start = i
	}
	return strings.Join(all, " ")
}

// faults are promises without a test, promises that are not defined, and mutants whose test is gone or shows another promise.
func (e *evidence) faults() []string {
	var faults []string
	if len(e.promises) == 0 {
		faults = append(faults, "docs/guarantees.md defines no promise")
	}
	tests := map[string]int{}
	defined := func(where, id string) {
		if !slices.ContainsFunc(e.promises, func(p promise) bool { return p.id == id }) {
			faults = append(faults, where+": docs/guarantees.md does not define "+id)
		}
	}
	for _, p := range e.proofs {
		for _, id := range p.promises {
			tests[id]++
			defined(p.dir+" "+p.name, id)
		}
	}
	for _, p := range e.promises {
		if tests[p.id] == 0 {
			faults = append(faults, p.id+": no test names this promise")
		}
		if !slices.ContainsFunc(e.proofs, func(t proof) bool { return t.name == p.headline && slices.Contains(t.promises, p.id) }) {
			faults = append(faults, p.id+": the headline test "+p.headline+" does not name it")
		}
	}
	for _, m := range e.mutants {
		dir, pattern := m.target()
		selected := e.selects(dir, pattern)
		if len(selected) == 0 {
			faults = append(faults, fmt.Sprintf("%s.patch: ./%s has no test %s", m.name, dir, pattern))
			continue
		}
		for id := range strings.SplitSeq(m.promise, ", ") {
			defined(m.name+".patch", id)
			shows := func(p proof) bool { return slices.Contains(selected, p.name) && slices.Contains(p.promises, id) }
			if !slices.ContainsFunc(e.proofs, shows) {
				faults = append(faults, fmt.Sprintf("%s.patch: no test of ./%s -run %s names %s", m.name, dir, pattern, id))
			}
		}
	}
	return faults
}

// target returns the package of a mutant's test, below the repository, and the pattern after -run.
func (m mutant) target() (dir, pattern string) {
	module := ""
	for i, word := range m.test {
		switch before := m.test[max(0, i-1)]; {
		case before == "-C":
			module = word
		case before == "-run":
			pattern = word
		case word == "." || strings.HasPrefix(word, "./"):
			dir = word
		}
	}
	return path.Join(module, dir), pattern
}

// selects returns the tests that a pattern of -run finds or, where it runs the conformance suite, the theorems.
func (e *evidence) selects(dir, pattern string) []string {
	expression, sub, _ := strings.Cut(pattern, "/")
	if dir == locking && (expression == "" || strings.HasPrefix(expression, "TestConformance")) {
		dir, expression = locktest, sub
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(e.names[dir]), func(name string) bool { return !re.MatchString(name) })
}

// page is the page of evidence, in Markdown.
func (e *evidence) page() []byte {
	var b bytes.Buffer
	b.WriteString(`# Evidence

Which tests show each promise of docs/guarantees.md, and which faults they are known to catch. A test names its promise in the last
line of its doc comment, a theorem of the conformance suite beside its name, a mutant in its header.

A mutant is a patch in ` + "`integration/mutants`" + ` that breaks one promise on purpose: ` + "`make mutants`" + ` applies each to a copy of the
repository and demands that its test fails. ` + "`make evidence`" + ` writes this page.
`)
	for _, p := range e.promises {
		fmt.Fprintf(&b, "\n## %s: %s\n", p.id, p.title)
		dir := ""
		for _, test := range e.proofs {
			if !slices.Contains(test.promises, p.id) {
				continue
			}
			if test.dir != dir {
				dir = test.dir
				fmt.Fprintf(&b, "\nTests in `%s`:\n\n", dir)
			}
			fmt.Fprintf(&b, "- %s\n", test.sentence)
		}
		before := "\nMutants:\n\n"
		for _, m := range e.mutants {
			if slices.Contains(strings.Split(m.promise, ", "), p.id) {
				_, pattern := m.target()
				fmt.Fprintf(&b, "%s- `%s`: %s Caught by `%s`.\n", before, m.name, m.sentence, strings.TrimSuffix(pattern, "$"))
				before = ""
			}
		}
	}
	return b.Bytes()
}
