// Package testtier divides the tests between `make test` and `make test-long`.
//
// A test that takes more than five seconds under the race detector calls [Slow] in its first line. `make test` runs with -short and skips it; `make
// test-long` runs only such tests.
//
// A test that only computes is about ten times as slow under the race detector. It asks [RaceEnabled], and does only a part of its work if the
// detector is on. `make test-long` runs it a second time without the detector. Make finds both kinds in the source: see the Makefile.
//
// [SyncPage] compares the generated parts of pages in docs/ with the code that generates them.
package testtier

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// Slow skips a test under -short.
func Slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow: make test-long runs it")
	}
}

// part matches a generated part of a page in docs/. It stands between two comments, and the first one names the owner and the part:
//
//	<!-- generated: config redis -->
//	...
//	<!-- end -->
//
// The rest of a page is written by hand.
var part = regexp.MustCompile(`(?s)<!-- generated: (\w+) ([^\n]*?) -->\n(.*?)<!-- end -->`)

// SyncPage compares an owner's parts of a page in docs/ with the wanted texts by name. With write set, it first writes the wanted texts to the page. It is called
// by the test of a package two folders below the root.
func SyncPage(t *testing.T, page, owner string, parts map[string]string, write bool) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", page)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, faults := replaceParts(string(before), owner, parts)
	if write {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // as the rest of docs
			t.Fatal(err)
		}
		_, faults = replaceParts(text, owner, parts)
	}
	for _, fault := range faults {
		t.Errorf("docs/%s: %s\nrun in this package: go test -run %s -update", page, fault, t.Name())
	}
}

// replaceParts returns the page with the wanted texts, and the differences from the given page.
func replaceParts(page, owner string, parts map[string]string) (text string, faults []string) {
	seen := map[string]bool{}
	text = part.ReplaceAllStringFunc(page, func(found string) string {
		m := part.FindStringSubmatch(found)
		want, known := parts[m[2]]
		switch {
		case m[1] != owner:
			return found
		case !known:
			faults = append(faults, fmt.Sprintf("the part %q is nothing that the code has", m[2]))
			return found
		}
		seen[m[2]] = true
		if m[3] != want {
			faults = append(faults, fmt.Sprintf("the part %q is out of date; it is to be\n%s", m[2], want))
		}
		return fmt.Sprintf("<!-- generated: %s %s -->\n%s<!-- end -->", owner, m[2], want)
	})
	for name := range parts {
		if !seen[name] {
			faults = append(faults, fmt.Sprintf("the page has no part <!-- generated: %s %s -->", owner, name))
		}
	}
	slices.Sort(faults)
	return text, faults
}
