package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSlowTestsRun: each test that `make test` leaves to `make test-long` exists, in package integration and nowhere else. One that was renamed would run in
// both, and one of the same name elsewhere in none.
func TestSlowTestsRun(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(makefile), "SLOW := ")
	list, _, found := strings.Cut(list, "\n# Without")
	if !found {
		t.Fatal("the Makefile has no list SLOW")
	}
	places := testPlaces(t)
	for name := range strings.SplitSeq(strings.ReplaceAll(list, "\\\n", ""), "|") {
		if at := places[name]; len(at) != 1 || at[0] != "integration" {
			t.Errorf("%s is a test in %q, want one in integration alone", name, at)
		}
	}
}

// testPlaces are the folders with a test, by its name.
func testPlaces(t *testing.T) map[string][]string {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	places := map[string][]string{}
	err := filepath.WalkDir("../..", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, _ := filepath.Rel("../..", filepath.Dir(path))
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			places[m[1]] = append(places[m[1]], folder)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return places
}
