package redisconn

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/testtier"
)

// judgedChecks are the checks of doctor in docs/engines.md, the version first: those that depend on the engine and not on the machine.
var judgedChecks = []string{checkVersion, checkRights, checkScripts, checkMessages}

// testedKinds are the kinds of deployment whose tests `make engines` runs.
var testedKinds = []Kind{KindSingle, KindSentinel, KindCluster, KindQuorum}

const judgedFile = "testdata/engines.json"

// A judged is what `make engines` found out about a package of Debian.
type judged struct {
	Facts  map[string]string `json:"facts"`            // by check
	Passed map[Kind][]string `json:"passed,omitempty"` // names of tests
	Failed map[Kind][]string `json:"failed,omitempty"`
}

// TestEngines holds the list in docs/engines.md against the results in testdata. `make engines` sets CRONCLAVE_ENGINES to the folder of new
// judgements and results of tests, which -update adds.
func TestEngines(t *testing.T) {
	t.Parallel()
	all := map[string]judged{} // by package
	readJSON(t, judgedFile, &all)
	found, err := filepath.Glob(filepath.Join(os.Getenv("CRONCLAVE_ENGINES"), "*:*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		for _, path := range found {
			name := strings.TrimSuffix(filepath.Base(path), ".json")
			all[name] = mergeJudged(all[name], readJudged(t, path))
		}
		text, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(judgedFile, append(text, '\n'), 0o644); err != nil { //nolint:gosec // as the rest of the source
			t.Fatal(err)
		}
	}
	byFacts := map[string]string{} // packages with their tests
	for _, name := range slices.Sorted(maps.Keys(all)) {
		byFacts[all[name].facts()] += "- `" + name + "`, " + all[name].Facts[checkVersion] + ": " + all[name].results() + "\n"
	}
	var list strings.Builder
	for _, facts := range slices.Sorted(maps.Keys(byFacts)) {
		list.WriteString(facts + "\n\n" + byFacts[facts])
	}
	testtier.SyncPage(t, "engines.md", "redis", map[string]string{"engines": list.String()}, *update)
}

// facts returns the results of the checks in one sentence, which is the same for most packages.
func (j judged) facts() string {
	var facts []string
	for _, check := range slices.Concat(judgedChecks[1:], []string{"promises"}) {
		facts = append(facts, check+": "+j.Facts[check])
	}
	return strings.Join(facts, "; ") + "."
}

// results returns the number of passed tests for each kind of deployment.
func (j judged) results() string {
	if j.Passed == nil && j.Failed == nil {
		return notRun
	}
	var results []string
	for _, kind := range testedKinds {
		results = append(results, string(kind)+" "+j.result(kind))
	}
	return strings.Join(results, ", ")
}

// notRun stands for tests that `make engines` did not run.
const notRun = "not run"

// result returns the number of passed tests of a kind of deployment.
func (j judged) result(kind Kind) string {
	passed, failed := len(j.Passed[kind]), len(j.Failed[kind])
	switch {
	case failed > 0:
		return fmt.Sprintf("%d of %d passed", passed, passed+failed)
	case passed > 0:
		return fmt.Sprintf("%d passed", passed)
	}
	return notRun
}

// mergeJudged returns the new result for a package. If only doctor ran, the results of the tests stay, but not for another version.
func mergeJudged(old, found judged) judged {
	if found.Passed == nil && found.Failed == nil && old.Facts[checkVersion] == found.Facts[checkVersion] {
		found.Passed, found.Failed = old.Passed, old.Failed
	}
	return found
}

// TestTestsOfAnotherVersionAreDropped, because the page would claim that the new version passed them.
func TestTestsOfAnotherVersionAreDropped(t *testing.T) {
	t.Parallel()
	of := func(version string, tests ...string) judged {
		j := judged{Facts: map[string]string{checkVersion: version}}
		if len(tests) > 0 {
			j.Passed = map[Kind][]string{KindSingle: tests}
		}
		return j
	}
	for _, tc := range []struct {
		old, found judged
		want       string
	}{
		{of("redis 7", "TestA", "TestB"), of("redis 7"), "2 passed"}, {of("redis 7", "TestA"), of("redis 8"), "not run"},
		{of("redis 7", "TestA", "TestB"), of("redis 7", "TestA"), "1 passed"}, {judged{}, of("redis 8", "TestA"), "1 passed"},
		{of("redis 7", "TestA"), judged{Failed: map[Kind][]string{KindSingle: {"TestA"}}}, "0 of 1 passed"},
	} {
		if got := mergeJudged(tc.old, tc.found).result(KindSingle); got != tc.want {
			t.Errorf("%+v then %+v: %q, want %q", tc.old, tc.found, got, tc.want)
		}
	}
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// readJudged returns the judgement in a file of doctor, with the results of the tests from the file beside it. That file is missing if no tests ran.
func readJudged(t *testing.T, path string) judged {
	t.Helper()
	j := judged{Facts: judgedFacts(t, path)}
	text, err := os.ReadFile(strings.TrimSuffix(path, ".json") + ".tests")
	if errors.Is(err, fs.ErrNotExist) {
		return j
	} else if err != nil {
		t.Fatal(err)
	}
	j.Passed, j.Failed = map[Kind][]string{}, map[Kind][]string{}
	for line := range strings.Lines(string(text)) { // such as "cluster TestResharding passed"
		words := strings.Fields(line)
		if len(words) != 3 || !slices.Contains(testedKinds, Kind(words[0])) {
			t.Fatalf("%s: %q", path, line)
		}
		of := j.Failed
		if words[2] == "passed" {
			of = j.Passed
		}
		of[Kind(words[0])] = append(of[Kind(words[0])], words[1])
	}
	return j
}

// judgedFacts returns what the table says about a judgement.
func judgedFacts(t *testing.T, path string) map[string]string {
	t.Helper()
	var d Diagnosis
	readJSON(t, path, &d)
	if len(d.Servers) != 1 {
		t.Fatalf("%s: %d servers", path, len(d.Servers))
	}
	facts := map[string]string{}
	for _, c := range d.Servers[0].Checks {
		if slices.Contains(judgedChecks, c.Name) {
			facts[c.Name] = c.Fact
		}
	}
	var broken []string
	for _, p := range d.Promises {
		if p.Holds != HoldsYes {
			broken = append(broken, p.ID)
		}
	}
	facts["promises"] = "all hold"
	if len(broken) > 0 {
		facts["promises"] = "not " + strings.Join(broken, ", ")
	}
	return facts
}
