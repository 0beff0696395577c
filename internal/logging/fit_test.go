package logging

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
)

// TestJSONLinesFitContainerRuntimes logs output, and errors, of characters that JSON writes with one to six bytes: each line stays below 16 KiB, and is cut between
// characters.
func TestJSONLinesFitContainerRuntimes(t *testing.T) {
	for name, text := range map[string]string{
		"ASCII": "x", "umlauts": "ä", "four bytes": "😀", "quotation marks": `"`, "tabs": "\t", "separators": "\u2028", "replacement": "\ufffd", "control": "\x01y", "bytes": "\xffy",
		"HTML": "<&>", "backslashes": `\`,
	} {
		for _, shift := range []string{"", "a", "ab", "abc"} {
			long := shift + strings.Repeat(text, 64<<10)
			entries, size := logged(t, func(log hclog.Logger) {
				o := NewOutput(log.Named("replica").With("job", strings.Repeat("j", 128), "run_id", strings.Repeat("r", 200), "token", 1, "tick", "2026-11-27T00:00:00Z"))
				o.Line("stdout", []byte(long))
			})
			if name != "replacement" { // a row of these becomes one character
				fits(t, name+", output", entries, size)
			}
			entries, size = logged(t, func(log hclog.Logger) { log.Warn("failed", "error", long, "stack", long) })
			fits(t, name+", error", entries, size)
			if last := entries[0]["error"].(string); !strings.HasSuffix(last, "…") {
				t.Errorf("%s: the cut is not shown", name)
			}
		}
	}
}

// fits demands one line that is shorter than 16 KiB, not by much, and whole characters.
func fits(t *testing.T, name string, entries []entry, size int) {
	t.Helper()
	if len(entries) != 1 || size >= 16<<10 || size < 4<<10 {
		t.Errorf("%s: %d lines of %d bytes", name, len(entries), size)
	}
	for _, e := range entries {
		for key, value := range e {
			text, _ := value.(string)
			if !utf8.ValidString(text) || strings.Contains(text, "\ufffd") && !strings.Contains(name, "replacement") && !strings.Contains(name, "control") && !strings.Contains(name, "bytes") {
				t.Errorf("%s: %s is cut within a character", name, key)
			}
		}
	}
}

// TestFittingIsWhatJSONTakes compares with the encoder.
func TestFittingIsWhatJSONTakes(t *testing.T) {
	const text = "a\"\\\t\n\r\x00\x1f\x7fä€😀\u2028\u2029\ufffd<&>"
	for most := range 80 {
		n := fittingLength(text, most)
		encoded, err := json.Marshal(text[:n])
		if err != nil || !utf8.ValidString(text[:n]) {
			t.Fatal(err)
		}
		if got := len(strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(encoded))) - 2; got > most {
			t.Errorf("%d bytes are to fit, and %q takes %d", most, text[:n], got)
		}
	}
}
