package redisconn

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/testtier"
)

// judgedChecks are the checks of doctor in the table of docs/engines.md: those that depend on the engine and not on the machine.
var judgedChecks = []string{checkVersion, checkRights, checkScripts, checkMessages}

const judgedFile = "testdata/engines.json"

// TestEngines holds the table of docs/engines.md against the judgements in testdata. `make engines` sets CRONCLAVE_ENGINES to the folder of new
// judgements, which -update adds.
func TestEngines(t *testing.T) {
	t.Parallel()
	judged := map[string]map[string]string{} // facts by package and check
	readJSON(t, judgedFile, &judged)
	found, err := filepath.Glob(filepath.Join(os.Getenv("CRONCLAVE_ENGINES"), "*:*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		for _, path := range found {
			judged[strings.TrimSuffix(filepath.Base(path), ".json")] = judgedFacts(t, path)
		}
		text, err := json.MarshalIndent(judged, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(judgedFile, append(text, '\n'), 0o644); err != nil { //nolint:gosec // as the rest of the source
			t.Fatal(err)
		}
	}
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(judged)) {
		row := []string{"`" + name + "`"}
		for _, check := range judgedChecks {
			row = append(row, judged[name][check])
		}
		rows = append(rows, append(row, judged[name]["promises"]))
	}
	parts := map[string]string{"engines": testtier.Table(t, append(append([]string{"package"}, judgedChecks...), "promises"), rows)}
	testtier.SyncPage(t, "engines.md", "redis", parts, *update)
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
