//go:build mutants

package mutants

import (
	"os"
	"path/filepath"
	"testing"
)

// Each patch of this folder makes its test fail; -run TestMutants/NAME runs one.
func TestMutants(t *testing.T) {
	paths, err := filepath.Glob("*.patch")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatal("no *.patch here: nothing proves that the tests can fail")
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := newRunner(repository, t.TempDir())
	var results []result
	for _, path := range paths {
		m, err := parseMutant(path)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			res := r.run(t.Context(), m)
			results = append(results, res)
			if res.verdict != caught {
				t.Errorf("%s: %v", res.verdict, res.why)
			}
		})
	}
	if err := printTable(os.Stdout, results); err != nil {
		t.Error(err)
	}
}
