package config

import (
	"os"
	"path/filepath"
	"regexp"
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
	for _, name := range []string{"document/place_test.go", "document/redefinition_test.go"} { // whose strings are hard to read
		source, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, literal := range regexp.MustCompile(`"(\\.|[^"\\\n])*"`).FindAllString(string(source), -1) {
			if text, err := strconv.Unquote(literal); err == nil {
				f.Add(text)
			}
		}
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
			c := assembleConfig(l.Reader, []document.Value{root}, newFileChecks(l.Report, l.options), l.options)
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
