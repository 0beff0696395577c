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

var update = flag.Bool("update", false, "write the tables of docs/configuration.md anew")

// TestReference holds the tables of docs/configuration.md that are not of keys against the code. -update writes them.
func TestReference(t *testing.T) {
	t.Parallel()
	parts := map[string]string{}
	add := func(name string, header []string, rows [][]string) { parts[name] = testtier.Table(t, header, rows) }
	add("outcomes", []string{"outcome", "meaning"}, meaningRows(outcomes))
	add("reasons", []string{"reason", "of", "meaning"}, reasonRows())
	add("exit codes", []string{"code", "meaning", "detail"}, exitCodeRows())
	add("job variables", []string{"variable", "value"}, jobVariableRows())
	add("lock variables", []string{"variable", "value"}, lockVariableRows())
	add("read variables", []string{"variable", "meaning"}, readVariableRows())
	parts["common log fields"], parts["log fields"] = fieldList(commonFields), fieldList(otherFields)
	testtier.SyncPage(t, "configuration.md", "cronclave", parts, *update)
}

// entry is a row of a table: a word of the code, or several with blanks between them, and the meaning.
type entry struct{ word, meaning string }

func meaningRows(of []entry) (rows [][]string) {
	for _, e := range of {
		rows = append(rows, []string{"`" + e.word + "`", e.meaning})
	}
	return rows
}

func words(of []entry) (all []string) {
	for _, e := range of {
		all = append(all, strings.Fields(e.word)...)
	}
	return all
}

func exitCodeRows() (rows [][]string) {
	for _, c := range exitCodes() {
		rows = append(rows, []string{fmt.Sprint(c.code), c.meaning, c.detail})
	}
	return append(rows,
		[]string{"126", "the command can't be executed", "`lock`, `exec` and `trigger --wait`."},
		[]string{"127", "the command is not found", "The same."},
		[]string{"128+N", "signal N ended the command", "The same."},
		[]string{"others", "the command's own", "The same."})
}

func jobVariableRows() (rows [][]string) {
	for _, v := range replica.Variables() {
		rows = append(rows, []string{"`" + v.Name + "`", v.Doc})
	}
	return rows
}

func lockVariableRows() (rows [][]string) {
	for _, v := range lockVariables() {
		rows = append(rows, []string{"`" + v.name + "`", strings.ToUpper(v.doc[:1]) + v.doc[1:] + "."})
	}
	return rows
}

func readVariableRows() (rows [][]string) {
	for _, v := range readVariables() {
		rows = append(rows, []string{"`" + v.name + "`", v.doc})
	}
	return rows
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
	for _, rows := range [][][]string{jobVariableRows(), lockVariableRows(), readVariableRows()} {
		for _, row := range rows {
			if name := strings.Trim(row[0], "`"); variable.MatchString(name) {
				known[name] = true
			}
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

type readVariable struct{ name, doc string }

func readVariables() []readVariable {
	return []readVariable{
		{envConfig, "The configuration, unless `-c` names one."},
		{envRedis, "The URL of Redis, unless `--redis` names one. It replaces `[redis].url` and `quorum`, and may have a password."},
		{envClockOffset, "`run`: a duration that is added to the replica's clock, for rehearsals."},
		{envRunID, "Inside a job, a cronclave process leaves its environment readable for the same user, so that the replica finds it, unless `" + envRedis + "` is set."},
		{envNoColor, "If it is set, logs, `demo`, `status` and `history` have no colours."},
		{envTerm, "If it is `dumb`, `demo`, `status` and `history` have no colours."},
		{envUser, "`trigger` records it, with the host, as the user."},
		{envGC, "Go's garbage collection. `run` uses 400 unless it is set."},
	}
}
