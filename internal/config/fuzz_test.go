package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/config/document"
)

// FuzzRead reads any text as a configuration. Nothing panics, and faults have a place and one line. FuzzPlaces of package document compares the
// places with what the library has read.
// Promise: P8
func FuzzRead(f *testing.F) {
	archives, err := filepath.Glob("testdata/faults/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range append(archives, filepath.Join("..", "..", "jobs.example.toml")) {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
		if _, toml, found := strings.Cut(string(text), "-- jobs.toml --\n"); found {
			toml, _, _ = strings.Cut(toml, "-- ")
			f.Add(toml)
		}
	}
	for _, text := range append(literals(f, "document/place_test.go"), literals(f, "document/redefinition_test.go")...) {
		f.Add(text)
	}
	for _, c := range specified {
		f.Add(strings.ReplaceAll(c.file, ">", ""))
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := document.New("jobs.toml", text)
		l := newLoader(Options{Env: environment("A=b", "EMPTY=")})
		faults := file.Parse(document.NewBounds())
		if root, ok := file.Root(); ok {
			delete(root.Raw.(map[string]any), "include") // no files are read here
			c := assemble(l.Reader, []document.Value{root}, newFileChecks(l.Report, l.options), l.options.Now)
			faults = append(faults, l.Sorted(nil)...)
			_ = c.Digest()
		}
		for _, fault := range faults {
			if fault.Line < 1 || fault.Column < 1 || strings.ContainsAny(fault.Message, "\n\r") || fault.Message == "" {
				t.Errorf("%q", fault.String())
			}
		}
	})
}

// literals are the strings in a Go file.
func literals(t testing.TB, name string) (found []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				found = append(found, text)
			}
		}
		return true
	})
	return found
}
