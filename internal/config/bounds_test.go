package config

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/testtier"
)

// The bounds of package document.
const maxFileBytes, maxString, maxKey, maxParts = document.MaxFileBytes, 256 << 10, 1 << 10, 32

// sprawling are texts of up to 4 MiB that took much memory, or time, for what they are.
var sprawling = map[string]struct{ text, want string }{
	"lists, deep":        {"a = " + strings.Repeat("[", 40_000) + strings.Repeat("]", 40_000), "jobs.toml:1:37: nested more than 32 deep"},
	"tables, deep":       {"a = " + strings.Repeat("{a = ", 40_000) + "1" + strings.Repeat("}", 40_000), "nested more than 32 deep"},
	"never closed":       {"a = " + strings.Repeat("[", maxFileBytes-4), "nested more than 32 deep"},
	"a key of many":      {"a" + strings.Repeat(".a", 40_000) + " = 1", "jobs.toml:1:1: a key of more than 32 parts"},
	"a header of many":   {"[a" + strings.Repeat(".a", 40_000) + "]", "a key of more than 32 parts"},
	"no TOML, but many":  {"a={};\n" + many(300_000, "k%x=1\n"), "more than 250000 values and headers in all files"},
	"many good keys":     {many(300_000, "k%x=1\n"), "more than 250000 values and headers in all files"},
	"many elements":      {"a = [" + strings.Repeat("1,", 1_000_000) + "]", "more than 250000 values and headers in all files"},
	"many empty lists":   {"a = [" + strings.Repeat("[],", 1_000_000) + "]", "more than 250000 values and headers in all files"},
	"many parts":         {strings.Repeat("[[a]]\n", 600_000), "more than 250000 values and headers in all files"},
	"a long header":      {"[" + longPath + "]\n" + many(100_000, "k%x=1\n"), "the names of keys and the tables around them are longer than 64 MiB"},
	"a long table":       {longPath + " = {" + many(100_000, "k%x=1,") + "}", "the names of keys and the tables around them are longer than 64 MiB"},
	"a long string":      {"description = '" + strings.Repeat("x", maxString) + "'", "jobs.toml:1:15: a string of more than 256 KiB"},
	"many second ones":   {strings.Repeat("a=1\n", 240_000), `jobs.toml:2:1: "a" is already set`},
	"many unknown":       {"[redis]\n" + many(240_000, "k%x=1\n"), "more than 1000 faults"},
	"many on one line":   {"redis = {" + many(240_000, "k%x=1,") + "}", "more than 1000 faults"},
	"a long unknown one": {strings.Repeat("n", maxFileBytes-100) + " = 1", "a key of more than 1 KiB"},
	"many unset":         {"[defaults]\ndescription = \"" + strings.Repeat("${X}", 60_000) + "\"", "more than 1000 faults"},
	"jobs on one line":   {"jobs = {" + many(120_000, "k%x={},") + "}", "more than 1000 faults"},
	"a line of places":   {"redis = {" + many(2_000, "k%x=1,") + "url='" + strings.Repeat("é", 100_000) + "'}", "more than 1000 faults"},
}

// longPath is as long as a key may be.
var longPath = strings.TrimSuffix(strings.Repeat(strings.Repeat("n", maxKey)+".", maxParts), ".")

func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// Text beyond the bounds is a fault, and takes memory in proportion to its length at most. `make test-long` reads the long ones, too.
func TestBounds(t *testing.T) {
	t.Chdir(t.TempDir())
	const most = 1 << 30 // allocated in all, of which most is free again by the end
	for name, tc := range sprawling {
		if testtier.RaceEnabled && len(tc.text) > 1<<20 { // these take memory; nothing in them is concurrent
			continue
		}
		if len(tc.text) > maxFileBytes {
			t.Fatalf("%s: %d bytes", name, len(tc.text))
		}
		if err := os.WriteFile("jobs.toml", []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Load("jobs.toml", Options{Env: environment()})
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %.200v, want %s", name, err, tc.want)
		}
		t.Logf("%s: %d KiB of text, %d MiB allocated", name, len(tc.text)>>10, (after.TotalAlloc-before.TotalAlloc)>>20)
		if got := after.TotalAlloc - before.TotalAlloc; got > most {
			t.Errorf("%s: %d MiB allocated", name, got>>20)
		}
	}
}

// TestBoundsOfAllFiles: many files are no way around the bounds of one.
func TestBoundsOfAllFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		files int
		text  string
		want  string
	}{
		"bytes":  {5, "#" + strings.Repeat("x", maxFileBytes-1), "the configuration is longer than 16 MiB in all files"},
		"values": {3, "jobs = {" + many(100_000, "k%x={},") + "}", "more than 250000 values and headers in all files"},
	} {
		dir := t.TempDir()
		for i := range tc.files {
			if err := os.WriteFile(fmt.Sprintf("%s/%d.toml", dir, i), []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Load(dir, Options{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

// TestManyJobsAreWithinBounds: ten thousand jobs in one file are no excess.
func TestManyJobsAreWithinBounds(t *testing.T) {
	jobs := 10_000
	if testtier.RaceEnabled {
		jobs = 1000
	}
	t.Chdir(t.TempDir())
	const job = "[jobs.job-%x]\nschedule = '@daily'\ncommand = ['/usr/bin/true', 'an argument', 'another one']\nenv = { A = '1', B = '2' }\ntimeout = '1h'\ntags = ['one', 'two']\n"
	c, err := loadConfig(t, many(jobs, job), Options{})
	if err != nil || len(c.Jobs) != jobs {
		t.Errorf("%.300v", err)
	}
}
