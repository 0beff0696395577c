package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each test that `make test` leaves to `make test-long` exists, and all tests of its name are in packages that `make test-long` runs with the race detector.
// One that was renamed would run in the first; one of the same name in another package would run in neither.
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
	var packages []string
	for _, m := range regexp.MustCompile(`(?m)-run '\^\(\$\(SLOW\)\)\$\$' (.*)$`).FindAllStringSubmatch(string(makefile), -1) {
		packages = append(packages, strings.Fields(m[1])...)
	}
	places := testPlaces(t)
	for name := range strings.SplitSeq(strings.ReplaceAll(list, "\\\n", ""), "|") {
		at := places[name]
		if len(at) == 0 {
			t.Errorf("there is no test %s", name)
		}
		for _, folder := range at {
			if !slices.Contains(packages, "./"+folder) {
				t.Errorf("%s is a test in %s, of which make test-long runs none: it runs %s", name, folder, packages)
			}
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
