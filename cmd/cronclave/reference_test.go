package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/replica"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler/run"
)

var update = flag.Bool("update", false, "write the lists of docs/configuration.md anew")

// TestReference holds the lists of docs/configuration.md that are not of keys against the code. -update writes them.
func TestReference(t *testing.T) {
	t.Parallel()
	parts := map[string]string{
		"outcomes": entryList(outcomes), "reasons": reasonList(), "exit codes": exitCodeList(),
		"job variables": entryList(jobVariables()), "lock variables": entryList(variablesOfLock()), "read variables": entryList(readVariables()),
		"common log fields": entryList(commonFields), "log fields": entryList(otherFields),
	}
	testtier.SyncPage(t, "configuration.md", "cronclave", parts, *update)
}

// entry is an item of a list: a word of the code, or several with blanks between them, and the meaning.
type entry struct{ word, meaning string }

// entryList returns a list in Markdown. A table of so many short cells is harder to read.
func entryList(of []entry) string {
	var list strings.Builder
	for _, e := range of {
		list.WriteString("- `" + strings.Join(strings.Fields(e.word), "`, `") + "`: " + e.meaning + "\n")
	}
	return list.String()
}

func words(of []entry) (all []string) {
	for _, e := range of {
		all = append(all, strings.Fields(e.word)...)
	}
	return all
}

func exitCodeList() string {
	var list strings.Builder
	for _, c := range exitCodes() {
		fmt.Fprintf(&list, "- %d, %s: %s\n", c.code, c.meaning, c.detail)
	}
	list.WriteString("- others, of the command of `lock`, `exec` and `trigger --wait`: its own, 126 if it can't be executed, 127 if it is not found, 128+N if signal N ended it.\n")
	return list.String()
}

func jobVariables() (all []entry) {
	for _, v := range replica.Variables() {
		all = append(all, entry{v.Name, v.Doc})
	}
	return all
}

func variablesOfLock() (all []entry) {
	for _, v := range lockVariables() {
		all = append(all, entry{v.name, strings.ToUpper(v.doc[:1]) + v.doc[1:] + "."})
	}
	return all
}

// TestOutcomesAreThose holds the reference against the constants of the package that has outcomes.
func TestOutcomesAreThose(t *testing.T) {
	t.Parallel()
	want := slices.Sorted(slices.Values(words(outcomes)))
	found := constants(t, "../../scheduler/run", func(_ string, of ast.Expr) bool { id, ok := of.(*ast.Ident); return ok && id.Name == "Outcome" })
	if !slices.Equal(found, want) || len(run.Outcomes()) != len(want) {
		t.Errorf("the outcomes are %q, of which a list has %d, and %q in the reference", found, len(run.Outcomes()), want)
	}
}

// constants are the values of a package's string constants that are chosen by name and type, sorted.
func constants(t *testing.T, dir string, choose func(name string, of ast.Expr) bool) (values []string) {
	t.Helper()
	for _, file := range parsed(t, dir) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			for i := 0; ok && i < min(len(spec.Names), len(spec.Values)); i++ {
				if text, isText := textOf(spec.Values[i]); isText && choose(spec.Names[i].Name, spec.Type) {
					values = append(values, text)
				}
			}
			return true
		})
	}
	slices.Sort(values)
	return values
}

// parsed is the source of a package, without its tests.
func parsed(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// TestExitCodesAreThose demands a meaning of each constant.
func TestExitCodesAreThose(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("app.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared, explained []string
	for _, m := range regexp.MustCompile(`(?m)^\texit[A-Z]\w* += (\d+)$`).FindAllStringSubmatch(string(source), -1) {
		declared = append(declared, m[1])
	}
	for _, c := range exitCodes()[1:] {
		explained = append(explained, fmt.Sprint(c.code))
	}
	if !slices.Equal(declared, explained) {
		t.Errorf("the constants are %q, and those with a meaning %q", declared, explained)
	}
}

// variable is the name of an environment variable of ours, as a whole literal of the source.
var variable = regexp.MustCompile(`^CRONCLAVE_[A-Z_]+$`)

// internalVariables are not for users: a replica sets the first for its warden, and only builds for tests read the second.
var internalVariables = []string{"CRONCLAVE_WARDEN_LOG", "CRONCLAVE_FAILPOINTS"}

// TestVariablesAreThose looks for variables in the source of all packages.
func TestVariablesAreThose(t *testing.T) {
	t.Parallel()
	found, known := map[string]bool{}, map[string]bool{}
	for _, name := range internalVariables {
		known[name] = true
	}
	for _, name := range words(slices.Concat(jobVariables(), variablesOfLock(), readVariables())) {
		if variable.MatchString(name) {
			known[name] = true
		}
	}
	for _, dir := range packages(t) {
		for _, file := range parsed(t, dir) {
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok {
					if name, _ := textOf(lit); variable.MatchString(name) {
						found[name] = true
					}
				}
				return true
			})
		}
	}
	if !maps.Equal(found, known) {
		t.Errorf("variables in the source: %q\nin the reference: %q", slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(known)))
	}
}

// packages are the folders of all packages that are part of the program.
func packages(t *testing.T) (dirs []string) {
	t.Helper()
	for _, pattern := range []string{".", "../../scheduler", "../../scheduler/*", "../../election", "../../locking", "../../internal/*", "../../scheduler/internal/*", "../../internal/lease/*", "../../internal/replica/*", "../../internal/web/*", "../../internal/config/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("nothing in %s: %v", pattern, err)
		}
		for _, dir := range found {
			if sources, _ := filepath.Glob(filepath.Join(dir, "*.go")); len(sources) > 0 {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// TestJobVariablesAreReserved demands that no configuration sets what cronclave sets.
func TestJobVariablesAreReserved(t *testing.T) {
	t.Parallel()
	for _, v := range replica.Variables() {
		path := filepath.Join(t.TempDir(), "jobs.toml")
		text := "[jobs.a]\nschedule = '@daily'\ncommand = 'true'\nenv = { " + v.Name + " = 'x' }\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(path, config.Options{}); err == nil || !strings.Contains(err.Error(), "set by cronclave itself") {
			t.Errorf("%s: %v", v.Name, err)
		}
	}
}

func readVariables() []entry {
	return []entry{
		{envConfig, "Configuration, unless `-c` names one."},
		{envRedis, "URL of Redis, unless `--redis` names one. It replaces `[redis].url` and `quorum`, and may have a password."},
		{envClockOffset, "`run`: duration added to the replica's clock, for rehearsals."},
		{envRunID, "In a job, cronclave keeps its environment readable for the same user, so that the replica finds it, unless `" + envRedis + "` is set."},
		{envNoColor, "If set, logs, `demo`, `status` and `history` have no colours."},
		{envTerm, "If `dumb`, `demo`, `status` and `history` have no colours."},
		{envUser, "`trigger` records it, with the host, as the user."},
		{envGC, "Go's garbage collection. Default of `run`: 400."},
	}
}

// TestImportExamplesAreThoseOfThePage checks that the help of import gives the advice of docs/import.md: its examples are lines of the page.
func TestImportExamplesAreThoseOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "import.md"))
	if err != nil {
		t.Fatal(err)
	}
	for example := range strings.Lines(newImportCommand(&app{}).Example) {
		if !strings.Contains(string(page), "\n"+strings.TrimSpace(example)+"\n") {
			t.Errorf("not in docs/import.md: %s", example)
		}
	}
}
