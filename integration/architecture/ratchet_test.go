package architecture

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

// limitsFile has the most that each package may have, and is the table of what it has.
const limitsFile = "limits.txt"

var update = flag.Bool("update", false, "write "+limitsFile+" anew: for a step that makes a package easier to read, or a new package")

// TestHouseGetsNoHarderToRead holds each package to what it had of each measure when it was measured last.
func TestHouseGetsNoHarderToRead(t *testing.T) {
	t.Parallel()
	compiled, err := exports()
	if err != nil {
		t.Fatal(err)
	}
	found, now := map[string]figures{}, limits{}
	for _, p := range list(t, "linux") {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		if within(path, "integration") || within(path, "bench") || len(p.GoFiles) == 0 {
			continue
		}
		if found[path], err = measure(p, compiled); err != nil {
			t.Fatal(err)
		}
		now[path] = map[string]int{}
		for m, f := range found[path] {
			now[path][m] = f.count
		}
	}
	if *update {
		if err := os.WriteFile(limitsFile, []byte(table(now)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(limitsFile)
	if err != nil {
		t.Fatal(err)
	}
	limit, err := parseLimits(string(text))
	if err != nil {
		t.Fatalf("%s: %v", limitsFile, err)
	}
	for path, f := range found {
		for _, fault := range ratchetFaults(path, f, limit[path]) {
			t.Error(fault)
		}
	}
	for path := range limit {
		if found[path] == nil {
			t.Errorf("%s: there is no such package: write the table anew with -update", path)
		}
	}
	t.Logf("the house today:\n%s", table(now))
}

func TestRatchet(t *testing.T) {
	t.Parallel()
	limit := map[string]int{"fields": 30, "cycle": 3, "exported": 5}
	for _, tc := range []struct {
		name  string
		found figures
		fault string // contained in the one fault; "" for none
	}{
		{"as before", figures{"fields": {30, ""}, "cycle": {3, ""}, "exported": {5, ""}}, ""},
		{"grown", figures{"fields": {31, "tick"}, "cycle": {3, ""}, "exported": {5, ""}}, "fields is 31, and was 30 at most: tick"},
		{"grown within the goal", figures{"fields": {30, ""}, "cycle": {8, ""}, "exported": {5, ""}}, ""},
		{"grown beyond the goal", figures{"fields": {30, ""}, "cycle": {9, "a b"}, "exported": {5, ""}}, "cycle is 9, and was 3"},
		{"less", figures{"fields": {29, ""}, "cycle": {3, ""}, "exported": {5, ""}}, "lower that"},
	} {
		faults := ratchetFaults("p", tc.found, limit)
		if tc.fault == "" && len(faults) == 0 {
			continue
		}
		if tc.fault == "" || len(faults) != 1 || !strings.Contains(faults[0], tc.fault) {
			t.Errorf("%s: faults %q, want %q in it", tc.name, faults, tc.fault)
		}
	}
}

func TestLargestCycle(t *testing.T) {
	t.Parallel()
	edges := func(pairs ...string) graph {
		g := graph{}
		for _, p := range pairs {
			from, to, _ := strings.Cut(p, ">")
			for _, f := range []string{from, to} {
				if g[f] == nil {
					g[f] = map[string]bool{}
				}
			}
			g[from][to] = true
		}
		return g
	}
	for _, tc := range []struct {
		name string
		g    graph
		want []string
	}{
		{"a line", edges("a>b", "b>c"), nil},
		{"two", edges("a>b", "b>a", "b>c"), []string{"a", "b"}},
		{"by a detour", edges("a>b", "b>c", "c>a", "c>d", "e>a"), []string{"a", "b", "c"}},
		{"the larger of two", edges("a>b", "b>a", "b>c", "c>d", "d>e", "e>c"), []string{"c", "d", "e"}},
	} {
		if got := largestCycle(tc.g); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
