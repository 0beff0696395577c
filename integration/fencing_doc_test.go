package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each block of docs/fencing.md is tested code. It is a file of testdata/fencing, or whole lines of the tests that
// run these files; each such file is shown, and run.
func TestFencingDocQuotesWhatIsRun(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/fencing.md")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("fencing_*test.go")
	if err != nil || len(sources) == 0 {
		t.Fatal("no tests of the examples: ", err)
	}
	tests := "\n"
	for _, name := range slices.DeleteFunc(sources, func(name string) bool { return name == "fencing_doc_test.go" }) {
		tests += readFile(t, name)
	}
	blocks := codeBlocks(string(doc))
	files, err := filepath.Glob("testdata/fencing/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		i := slices.Index(blocks, readFile(t, name))
		if i < 0 {
			t.Errorf("docs/fencing.md does not show %s as it is", name)
			continue
		}
		blocks = slices.Delete(blocks, i, i+1)
		if !strings.Contains(tests, `"`+filepath.Base(name)+`"`) {
			t.Errorf("no test runs %s", name)
		}
	}
	for _, block := range blocks {
		if !strings.Contains(tests, "\n"+block) {
			t.Errorf("docs/fencing.md shows what no test runs:\n%s", block)
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// codeBlocks are the texts between lines of backquotes.
func codeBlocks(doc string) []string {
	const fence = "```"
	var blocks []string
	inside := false
	for line := range strings.Lines(doc) {
		switch {
		case strings.HasPrefix(line, fence):
			if inside = !inside; inside {
				blocks = append(blocks, "")
			}
		case inside:
			blocks[len(blocks)-1] += line
		}
	}
	return blocks
}

func TestExamplesAreGoodShell(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/fencing/*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts: ", err)
	}
	for _, name := range scripts {
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", name).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
