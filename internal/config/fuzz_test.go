package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzRead reads any text as a configuration. Nothing panics, faults have a place and one line, and where the library
// takes the text for TOML the places agree with what it has read.
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
	for _, text := range tricky {
		f.Add(text)
	}
	for _, c := range redefinitions {
		f.Add(c.text)
	}
	for _, c := range specified {
		f.Add(strings.ReplaceAll(c.file, ">", ""))
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := newSource("jobs.toml", text)
		r := newReader(Options{Env: environment("A=b", "EMPTY=")})
		faults := s.parse(&r.bounds)
		if s.tree != nil {
			delete(s.tree, "include") // no files are read here
			r.sources = []*source{s}
			c := r.config()
			faults = append(faults, r.faults...)
			_ = c.Digest()
			if len(faults) == 0 {
				if fault := disagreement(text); fault != "" {
					t.Error(fault)
				}
			}
		}
		for _, fault := range faults {
			if fault.Line < 1 || fault.Column < 1 || strings.ContainsAny(fault.Message, "\n\r") || fault.Message == "" {
				t.Errorf("%q", fault.String())
			}
		}
	})
}

// FuzzPlaces compares the places with what the library reads.
func FuzzPlaces(f *testing.F) {
	for _, text := range tricky {
		f.Add(text)
	}
	for _, c := range redefinitions {
		f.Add(c.text)
	}
	f.Add("a = " + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth))
	f.Add("a = " + strings.Repeat("{a = ", maxDepth) + strings.Repeat("}", maxDepth))
	f.Add(strings.Repeat("a.", maxParts) + "a = 1")
	f.Fuzz(func(t *testing.T, text string) {
		if fault := disagreement(text); fault != "" {
			t.Errorf("%s in\n%s", fault, text)
		}
	})
}
