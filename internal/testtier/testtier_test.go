package testtier

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSyncPage(t *testing.T) {
	const before = "# Page\n\n<!-- generated: a one -->\nold\n<!-- end -->\ntext\n<!-- generated: b one -->\nleft alone\n<!-- end -->\n<!-- generated: a gone -->\n<!-- end -->\n"
	const one = "- 1\n- 2\n"
	if _, faults := replaceParts(before, "a", map[string]string{"one": one, "two": "nowhere\n"}); len(faults) != 3 {
		t.Errorf("faults %q; want one each for a part that is old, one that is not known, and one that is not there", faults)
	}
	want := strings.Replace(before, "old\n", one, 1)
	if _, faults := replaceParts(want, "a", map[string]string{"one": one}); len(faults) != 1 || !strings.Contains(faults[0], "gone") {
		t.Errorf("faults %q of an up-to-date page; want one for a part that is not known", faults)
	}

	dir := t.TempDir()
	path := filepath.Join(dir, "docs", "page.md")
	for _, folder := range []string{filepath.Dir(path), filepath.Join(dir, "internal", "a")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(dir, "internal", "a"))
	SyncPage(t, "page.md", "a", map[string]string{"one": one, "gone": ""}, true)
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("the page is\n%s\nwant\n%s", got, want)
	}
}
