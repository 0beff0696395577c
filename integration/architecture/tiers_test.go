package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// noRealTime lists the packages that start a process in a test, and judge nothing by the clock.
var noRealTime = []string{"integration/architecture", "integration/mutants", "scheduler/cronspec"}

// goTest is one go test command of the Makefile.
type goTest struct {
	packages           []string
	run                *regexp.Regexp // nil for all tests
	short, race, alone bool           // -short, -race, -p of at most 2: otherwise a package may run beside one that computes
}

// tieredTest is a test function with the properties that decide its tier.
type tieredTest struct {
	pkg, name string
	slow      bool // it calls testtier.Slow
	whole     bool // it asks testtier.RaceEnabled
	processes bool // a file of its package starts processes
}

// TestTiersLeaveNothingOut compares the go test commands of make, and those of .ci/run, with every test of the module. A test that -short skips runs in a command without
// it, a test that does less under the race detector runs in a command of make without the detector (in .ci/run the lesser part is enough), and packages that start
// processes run beside no package that computes.
func TestTiersLeaveNothingOut(t *testing.T) {
	t.Parallel()
	tests, faults := tieredTests(t)
	if len(tests) < 500 || !slices.ContainsFunc(tests, func(t tieredTest) bool { return t.slow }) {
		t.Fatalf("%d tests are found, too few to be all", len(tests))
	}
	for _, fault := range faults {
		t.Error(fault)
	}
	ci, err := os.ReadFile(root + "/.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"make", ".ci/run"} {
		calls := []string{"lint test test-long"}
		if name == ".ci/run" {
			calls = makeCalls(string(ci))
			for i := range tests {
				tests[i].whole = false
			}
		}
		var commands []goTest
		for _, call := range calls {
			cmd := exec.Command("make", append([]string{"-n"}, strings.Fields(call)...)...)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("ask make for its commands (is it installed?): %v\n%s", err, out)
			}
			more, err := goTests(string(out), true)
			if err != nil {
				t.Fatal(err)
			}
			commands = append(commands, more...)
		}
		for _, fault := range tierFaults(commands, tests) {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

// makeCalls returns the arguments of the calls of make in a script.
func makeCalls(script string) (calls []string) {
	for _, m := range regexp.MustCompile(`(?m)^[^#\n]*\bmake ((?: ?[a-zA-Z-]+=?)+)`).FindAllStringSubmatch(script, -1) {
		calls = append(calls, m[1])
	}
	return calls
}

// goTests returns the commands of make that run tests. raceInFlags says that the Makefile exports -race in GOFLAGS, which a command can override.
func goTests(text string, raceInFlags bool) (commands []goTest, err error) {
	all := strings.Split(text, "go test ") // a line may have several
	for n, args := range all[1:] {
		line, _, _ := strings.Cut(args, "\n")
		var c goTest
		before := all[n][strings.LastIndexAny(all[n], "\n;")+1:]
		if !strings.Contains(before, "GOFLAGS=") {
			c.race = raceInFlags
		}
		words, module := strings.Fields(strings.ReplaceAll(line, ";", " ; ")), ""
		for i, word := range words {
			switch {
			case word == "-run":
				if c.run, err = regexp.Compile(strings.Trim(words[i+1], "'")); err != nil {
					return nil, fmt.Errorf("%s: %w", line, err)
				}
			case word == "-skip":
				return nil, fmt.Errorf("-skip leaves tests out that do not say so: %s", line)
			case word == "-p":
				c.alone = words[i+1] == "1" || words[i+1] == "2"
			case word == "-short":
				c.short = true
			case word == "-race":
				c.race = true
			case word == "-race=false":
				c.race = false
			case word == "-C":
				module = words[i+1]
			case word == "." || strings.HasPrefix(word, "./"):
				c.packages = append(c.packages, path.Join(module, word))
			}
		}
		commands = append(commands, c)
	}
	return commands, nil
}

// tierFaults returns a sentence for each test that runs nowhere, or only where it is skipped, does less, or disturbs others.
func tierFaults(commands []goTest, tests []tieredTest) (faults []string) {
	detector := slices.ContainsFunc(commands, func(c goTest) bool { return c.race })
	for _, test := range tests {
		var runs, whole, beside bool
		for _, c := range commands {
			if !slices.Contains(c.packages, test.pkg) || c.run != nil && !c.run.MatchString(test.name) || test.slow && c.short {
				continue
			}
			runs = runs || !test.slow || c.race || !detector
			whole = whole || !c.race
			beside = beside || !c.alone
		}
		at := test.pkg + ": " + test.name
		switch {
		case !runs:
			faults = append(faults, at+" is run by no command")
		case test.whole && !whole:
			faults = append(faults, at+" does less under the race detector, and runs in no command without it")
		case test.processes && beside && !slices.Contains(noRealTime, test.pkg):
			faults = append(faults, at+" runs beside other packages, and its package starts processes: add it to ALONE in the Makefile")
		}
	}
	return faults
}

// tieredTests reads the tests of all packages. A fault is a call that integration/tiers.sh does not find.
func tieredTests(t *testing.T) (tests []tieredTest, faults []string) {
	t.Helper()
	for _, p := range list(t, runtime.GOOS) {
		imports := append(slices.Clone(p.TestImports), p.XTestImports...)
		pkg := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, name := range append(slices.Clone(p.TestGoFiles), p.XTestGoFiles...) {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			found, more := testsOf(file)
			for _, test := range found {
				test.pkg, test.processes = pkg, slices.Contains(imports, "os/exec") || slices.Contains(imports, module+"/integration/harness")
				tests = append(tests, test)
			}
			for _, fault := range more {
				faults = append(faults, pkg+"/"+name+": "+fault)
			}
		}
	}
	return tests, faults
}

// testsOf returns the test functions of a file.
func testsOf(file *ast.File) (tests []tieredTest, faults []string) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		test := tieredTest{name: f.Name.Name}
		isTest := f.Recv == nil && strings.HasPrefix(test.name, "Test") && test.name != "TestMain"
		for _, statement := range f.Body.List {
			if s, ok := statement.(*ast.ExprStmt); ok && isTest && marksSlow(s.X) {
				test.slow = true
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok && marksSlow(e) && !test.slow {
				faults = append(faults, test.name+" calls slow in a branch or for a subtest: only a whole test can be slow")
			}
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "RaceEnabled" {
				test.whole = true
			}
			return true
		})
		switch {
		case isTest:
			tests = append(tests, test)
		case test.whole && file.Name.Name != "architecture":
			faults = append(faults, test.name+" asks testtier.RaceEnabled: only a test may, so that make test-long runs the whole of it")
		}
	}
	return tests, faults
}

// marksSlow reports whether an expression is slow(t) or testtier.Slow(t).
func marksSlow(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return false
	}
	arg, ok := call.Args[0].(*ast.Ident)
	return ok && arg.Name == "t" && slices.Contains([]string{"slow", "testtier.Slow"}, callee(call))
}

// Each kind of test that would run nowhere is found.
func TestTierFaultsAreFound(t *testing.T) {
	t.Parallel()
	const makefile = `make test:
go test -race -short ./a ./b
go test -race -p 1 -short ./c; others=$?; go test -race -p 1 -short ./e && exit $others
make test-long:
X=1 go test -race -p 1 -run '^(TestSlow)$' ./c
go test -v -run '^(TestWhole)$' ./a
`
	commands, err := goTests(makefile, false)
	if err != nil || len(commands) != 5 {
		t.Fatalf("%d commands, %v", len(commands), err)
	}
	for _, tc := range []struct {
		test tieredTest
		want string // "" for none
	}{
		{tieredTest{pkg: "a", name: "TestQuick"}, ""},
		{tieredTest{pkg: "c", name: "TestSlow", slow: true, processes: true}, ""},
		{tieredTest{pkg: "c", name: "TestQuick"}, ""},
		{tieredTest{pkg: "e", name: "TestQuick"}, ""},
		{tieredTest{pkg: "a", name: "TestWhole", whole: true}, ""},
		{tieredTest{pkg: "d", name: "TestQuick"}, "is run by no command"},
		{tieredTest{pkg: "c", name: "TestSlowest", slow: true}, "is run by no command"},
		{tieredTest{pkg: "b", name: "TestSlow", slow: true}, "is run by no command"},
		{tieredTest{pkg: "a", name: "TestWhole", slow: true, whole: true}, "is run by no command"},
		{tieredTest{pkg: "b", name: "TestWhole", whole: true}, "does less"},
		{tieredTest{pkg: "b", name: "TestQuick", processes: true}, "runs beside"},
	} {
		if got := strings.Join(tierFaults(commands, []tieredTest{tc.test}), "; "); !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%+v: %q, want %q", tc.test, got, tc.want)
		}
	}
	plain, err := goTests("X=1 go test ./a; GOFLAGS=\"$Y\" go test ./b; go test -p 8 ./c\n", true)
	if err != nil || len(plain) != 3 || !plain[0].race || plain[1].race || plain[2].alone {
		t.Errorf("with the detector in the flags: %+v, %v", plain, err)
	}
	nested, err := goTests("go test -C a -race . ./b\n", false)
	if err != nil || len(nested) != 1 || !slices.Equal(nested[0].packages, []string{"a", "a/b"}) {
		t.Errorf("in a module of a folder: %+v, %v", nested, err)
	}
	if _, err := goTests("go test -skip TestHard ./a\n", false); err == nil {
		t.Error("-skip is not refused")
	}
}

// A call that integration/tiers.sh cannot find is a fault.
func TestSlowCallsThatHideAreFound(t *testing.T) {
	t.Parallel()
	const source = `package a
func TestA(t *testing.T) { t.Parallel(); slow(t) }
func TestB(t *testing.T) { testtier.Slow(t); if testtier.RaceEnabled { return } }
func TestC(t *testing.T) { t.Run("", func(t *testing.T) { slow(t) }) }
func helper(t *testing.T) { slow(t) }
func less() bool { return testtier.RaceEnabled }
`
	file, err := parser.ParseFile(token.NewFileSet(), "a_test.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	tests, faults := testsOf(file)
	if want := []tieredTest{{name: "TestA", slow: true}, {name: "TestB", slow: true, whole: true}, {name: "TestC"}}; !slices.Equal(tests, want) {
		t.Errorf("tests %+v", tests)
	}
	if got := strings.Join(faults, "\n"); len(faults) != 3 || !strings.Contains(got, "TestC calls") || !strings.Contains(got, "helper calls") || !strings.Contains(got, "less asks") {
		t.Errorf("faults %s", got)
	}
}
