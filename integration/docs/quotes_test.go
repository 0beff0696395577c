package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	symptom  = regexp.MustCompile(`\*\*[^*]+\*\*`)
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// placeholder matches the parts of a quoted message that vary, and the places at which it is put together.
	placeholder = regexp.MustCompile(`\b[A-Z]{2,}\b|\b[NM]\b|\.\.\.|\||\d+|: `)
	joined      = regexp.MustCompile(`"\s*\+\s*"`)
)

// notOurs are parts of messages that come from the kernel, Go or Redis, or whose parts are named constants in the source.
var notOurs = []string{"no such host", "no space left on device", "text file busy", "setinfo", "maint_notifications", "not in /etc/passwd, and getent passwd",
	"there is no jobs.toml here"}

// TestQuotedMessagesAreThere looks in the source for the messages in the bold symptoms of the page: a reader searches for them.
func TestQuotedMessagesAreThere(t *testing.T) {
	t.Parallel()
	source := productSource(t)
	page, err := os.ReadFile(root + "/docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	quotes := 0
	for _, found := range symptom.FindAllString(string(page), -1) {
		for _, span := range codeSpan.FindAllStringSubmatch(found, -1) {
			for _, part := range placeholder.Split(span[1], -1) {
				part = strings.Trim(part, ` :,;()"`)
				for _, other := range notOurs {
					part = strings.ReplaceAll(part, other, "")
				}
				if len(part) < 4 {
					continue
				}
				quotes++
				if !strings.Contains(source, part) {
					t.Errorf("%q: no message of the program has %q", span[1], part)
				}
			}
		}
	}
	if quotes < 50 {
		t.Errorf("only %d quotes are found", quotes)
	}
}

// productSource returns the source of the program, with its texts in one piece each.
func productSource(t *testing.T) string {
	t.Helper()
	var source strings.Builder
	for _, folder := range []string{"cmd", "internal", "scheduler", "election", "locking"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			source.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return joined.ReplaceAllString(source.String(), "")
}
