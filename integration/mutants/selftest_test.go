package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/testtier"
)

// module is a tiny repository: two functions, of which only Double has a test that can fail.
var module = map[string]string{
	"go.mod":         "module example.com/tiny\n\ngo 1.26\n",
	"bin/stale":      "a built program, which no copy needs\n",
	"tiny.go":        "package tiny\n\nfunc Double(n int) int {\n\treturn 2 * n\n}\n\nfunc Half(n int) int {\n\treturn n / 2\n}\n",
	"a_test.go":      "package tiny\n\nimport \"testing\"\n\nfunc TestDouble(t *testing.T) {\n\tif Double(2) != 4 {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n",
	"b_test.go":      "package tiny\n\nimport \"testing\"\n\nfunc TestHalf(t *testing.T) { Half(2) }\n",
	"sick/a.go":      "package sick\n",
	"sick/a_test.go": "package sick\n\nimport \"testing\"\n\nfunc TestSick(t *testing.T) { t.Fatal(\"always\") }\n",
}

// edit makes a patch of the one statement of Double or Half.
func edit(function, from, to string) string {
	line := map[string]string{"Double": "3", "Half": "7"}[function]
	return "--- a/tiny.go\n+++ b/tiny.go\n@@ -" + line + ",3 +" + line + ",3 @@\n func " + function +
		"(n int) int {\n-\t" + from + "\n+\t" + to + "\n }\n"
}

func TestRunnerReportsEachVerdict(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	repository := t.TempDir()
	for name, text := range module {
		write(t, filepath.Join(repository, name), text)
	}
	r := newRunner(repository, t.TempDir())
	for _, tc := range []struct {
		name, test, patch string
		want              verdict
		by, why           string // contained in the result
	}{
		{"caught", "go test . -run TestDouble", edit("Double", "return 2 * n", "return 3 * n"), caught, "TestDouble", ""},
		{"caught by a panic", "go test . -run TestDouble", edit("Double", "return 2 * n", "return 2 / (n - n)"), caught, "TestDouble", ""},
		{"caught by a time-out", "go test . -run TestDouble -timeout 1s", edit("Double", "return 2 * n", "for n == n {}; return n"), caught, "TestDouble", ""},
		{"survives", "go test . -run TestHalf", edit("Half", "return n / 2", "return n / 3"), survived, "", "passes"},
		{"does not build", "go test . -run TestDouble", edit("Double", "return 2 * n", "return 2 * m"), broken, "", "does not build"},
		{"does not pass vet", "go test . -run TestDouble", edit("Double", "return 2 * n", "return len(string(n))"), broken, "", "does not build"},
		{"does not apply", "go test . -run TestDouble", edit("Double", "return n * 2", "return 3 * n"), broken, "", "does not apply"},
		{"test that fails anyway", "go test ./sick", edit("Double", "return 2 * n", "return 3 * n"), broken, "", "without the mutant too"},
		{"test that is not there", "go test . -run TestNothing", edit("Double", "return 2 * n", "return 3 * n"), broken, "", "runs no test"},
		{"package that is not there", "go test ./nowhere", edit("Double", "return 2 * n", "return 3 * n"), broken, "", "nowhere"},
	} {
		path := filepath.Join(t.TempDir(), "m.patch")
		write(t, path, "What is broken.\nPromise: P1\nTest: "+tc.test+"\n"+tc.patch)
		m, err := parseMutant(path)
		if err != nil {
			t.Fatal(err)
		}
		res := r.run(t.Context(), m)
		if res.verdict != tc.want || !strings.Contains(res.by, tc.by) {
			t.Errorf("%s: %s by %q (%v), want %s by %q", tc.name, res.verdict, res.by, res.why, tc.want, tc.by)
		}
		if tc.why != "" && (res.why == nil || !strings.Contains(res.why.Error(), tc.why)) {
			t.Errorf("%s: reason %v, want %q in it", tc.name, res.why, tc.why)
		}
	}
	if _, err := os.Stat(filepath.Join(r.tree, "bin")); err == nil {
		t.Error("built programs were copied")
	}
	if text, err := os.ReadFile(filepath.Join(repository, "tiny.go")); err != nil || string(text) != module["tiny.go"] {
		t.Errorf("the repository itself was changed: %v\n%s", err, text)
	}
}

func TestHeadersAreChecked(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, header, want string }{
		{"no promise", "Test: go test ./a -run T\n", "Promise"},
		{"unknown promise", "Promise: Q1\nTest: go test ./a -run T\n", "Promise"},
		{"no test", "Promise: P1, P3\n", "Test"},
		{"another program", "Promise: P1\nTest: make test\n", "Test"},
		{"quotes", "Promise: P1\nTest: go test ./a -run 'A|B'\n", "quotes"},
		{"headers in the diff", "--- a/x\nPromise: P1\nTest: go test ./a -run T\n", "Promise"},
	} {
		path := filepath.Join(t.TempDir(), "m.patch")
		write(t, path, tc.header)
		if _, err := parseMutant(path); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want a fault of %s", tc.name, err, tc.want)
		}
	}
}

// Each patch applies, since one that does not proves nothing. `make mutants` runs them.
func TestPatchesApply(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("*.patch")
	if err != nil || len(paths) == 0 {
		t.Fatal("no *.patch here", err)
	}
	for _, path := range paths {
		if _, err := parseMutant(path); err != nil {
			t.Error(err)
		}
		check := exec.Command("git", "apply", "--check", "integration/mutants/"+path)
		check.Dir = "../.."
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
}

func TestTableNamesWhatIsNotCaught(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	err := printTable(&table, []result{
		{mutant: mutant{name: "a", promise: "P1"}, verdict: caught, by: "TestA"},
		{mutant: mutant{name: "b", promise: "P3"}, verdict: survived},
	})
	want := "MUTANT  PROMISE  CAUGHT BY  TIME\na       P1       TestA      0s\nb       P3       SURVIVED   0s\n"
	if err != nil || table.String() != want {
		t.Errorf("table:\n%s, %v; want\n%s", table.String(), err, want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
