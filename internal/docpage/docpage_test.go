package docpage

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSync(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page.md")
	const before = "# Page\n\n<!-- generated: a one -->\nold\n<!-- end -->\ntext\n<!-- generated: b one -->\nleft alone\n<!-- end -->\n<!-- generated: a gone -->\n<!-- end -->\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{"one": Table([]string{"x", "y"}, [][]string{{"1", "2|3"}}), "two": "nowhere\n"}
	if faults, err := Sync(path, "a", parts, false); err != nil || len(faults) != 3 {
		t.Errorf("faults %q, %v; want one each for a part that is old, one that is not known, and one that is not there", faults, err)
	}
	if faults, err := Sync(path, "a", parts, true); err != nil || len(faults) != 2 {
		t.Errorf("faults %q, %v; want one each for a part that is not known, and one that is not there", faults, err)
	}
	got, err := os.ReadFile(path)
	want := strings.Replace(before, "old\n", "| x | y |\n| --- | --- |\n| 1 | 2\\|3 |\n", 1)
	if err != nil || string(got) != want {
		t.Errorf("the page is\n%s\nwant\n%s", got, want)
	}
	delete(parts, "two")
	if faults, err := Sync(path, "a", parts, false); err != nil || len(faults) != 1 || !strings.Contains(faults[0], "gone") {
		t.Errorf("faults %q, %v after the page was written", faults, err)
	}
}

func TestLongCells(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", MostWords+1)
	if got := LongCells([][]string{{"short", long}, {"short"}}); !slices.Equal(got, []string{long}) {
		t.Errorf("%q", got)
	}
}
