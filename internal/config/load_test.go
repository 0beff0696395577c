package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// TestRedefinitionsHideNothing checks that each redefinition is reported once, beside the other faults of the file, and that its content is ignored.
func TestRedefinitionsHideNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := loadConfig(t, `redis.url = "redis://h"
jobs.x = { schedule = "@daily", command = "true", command = "false", env = { A = "1", A = "2" } }
[redis]
url = 1
nothing = 2
[jobs.x]
lease = "1"
[jobs.y]
schedule = "@daily"
command = "true"
lease = "2"
`, Options{})
	want := []string{
		`jobs.toml:2:51: "command" is already set at jobs.toml:2:33; remove one of them`,
		`jobs.toml:2:87: "A" is already set at jobs.toml:2:78; remove one of them`,
		`jobs.toml:3:2: table "redis" is already defined at jobs.toml:1:1; join the two`,
		`jobs.toml:6:7: table "x" is already defined`,
		`jobs.toml:11:9: lease "2" is not a duration`,
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		if i >= len(want) || !strings.HasPrefix(line, strings.Replace(want[i], `table "x"`, `job "x"`, 1)) {
			t.Errorf("%s", line)
		}
	}
	if len(lines) != len(want) {
		t.Errorf("%d faults, want %d", len(lines), len(want))
	}
}

// TestOffsets checks that offsets of a whole day or of sixty minutes are refused. RFC 3339 has none.
func TestOffsets(t *testing.T) {
	for offset, good := range map[string]bool{"Z": true, "+00:00": true, "-23:59": true, "+23:59": true, "+01:60": false, "-00:60": false, "+24:00": false, "+24:59": false} {
		for _, text := range []string{"2026-01-31T09:00:00" + offset, `"2026-01-31T09:00:00` + offset + `"`, "2026-01-31 09:00:00.5" + offset + " # +01:00"} {
			t.Chdir(t.TempDir())
			_, err := loadConfig(t, "[jobs.a]\nschedule = '@daily'\ncommand = 'true'\nstarts_at = "+text+"\n", Options{})
			if good != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), "jobs.toml:4:13: ") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// The bounds of package document.
const maxFileBytes, maxString, maxKey, maxParts = document.MaxFileBytes, 256 << 10, 1 << 10, 32

// sprawling has texts of up to 4 MiB that would take too much memory or time.
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
	"many long cycles":   {longCycles(2_000), "more than 1000 faults"},
}

// longPath is a key of the maximum length.
var longPath = strings.TrimSuffix(strings.Repeat(strings.Repeat("n", maxKey)+".", maxParts), ".")

func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// longCycles returns jobs of which each runs after the next one and after the first one.
func longCycles(jobs int) string {
	var b strings.Builder
	for i := range jobs {
		fmt.Fprintf(&b, "[jobs.j%d]\nafter = ['j%d', 'j0']\ncommand = 'true'\n", i, i+1)
	}
	return b.String()
}

// TestBounds checks that text beyond the bounds is a fault, and that memory grows at most in proportion to its length. `make test-long` includes long texts.
func TestBounds(t *testing.T) {
	testtier.Slow(t)
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

// TestBoundsOfAllFiles checks that many files cannot bypass the bounds.
func TestBoundsOfAllFiles(t *testing.T) {
	testtier.Slow(t)
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

// TestManyJobsAreWithinBounds checks that one file may have ten thousand jobs.
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

// TestJobsAfterOneJobAreBounded checks that no more jobs may run after one job than its lock has room for, twice, and that disabled ones do not count. The jobs are in the order of their names.
func TestJobsAfterOneJobAreBounded(t *testing.T) {
	t.Chdir(t.TempDir())
	const after = "[jobs.child-%d]\nafter = ['parent']\ncommand = 'true'\n"
	text := "[jobs.parent]\nschedule = '@daily'\ncommand = 'true'\n[jobs.off]\nenabled = false\nafter = ['parent']\ncommand = 'true'\n" + many(2000, after)
	if _, err := loadConfig(t, text, Options{}); err != nil {
		t.Errorf("2000: %.300v", err)
	}
	text += fmt.Sprintf(after, 2000) + fmt.Sprintf(after, 2001)
	const want = `jobs.toml:3003:10: after "parent": more than 2000 jobs run after this job; let some of them run after another one`
	if _, err := loadConfig(t, text, Options{}); err == nil || err.Error() != want {
		t.Errorf("2002: %.300v", err)
	}
	if 2*mostAfter != lease.MaxFollowers {
		t.Errorf("%d jobs, %d followers", mostAfter, lease.MaxFollowers)
	}
}

// BenchmarkLongChain checks a chain of 10,000 jobs with a zone each, in which each job stands behind the one that it runs after, or before it.
func BenchmarkLongChain(b *testing.B) {
	spec, err := cronspec.Parse([]string{"0 3 * * *"}, cronspec.Options{})
	if err != nil {
		b.Fatal(err)
	}
	jobs, links := make([]Job, 10_000), []link{}
	for i := range jobs {
		jobs[i] = Job{Name: fmt.Sprintf("j%05d", i), Enabled: true}
		jobs[i].Spec = spec
		if i > 0 {
			links = append(links, link{jobs[i-1].Name, expression{Expansion: schema.Expansion{Text: jobs[i].Name}}})
		}
	}
	for b.Loop() {
		checkChains(&document.Report{}, jobs, links)
		slices.Reverse(jobs)
	}
}

// TestLineEndsOfWindows checks that a file saved on Windows has the same commands. A shell would take the CR as a part of the last word of each line.
func TestLineEndsOfWindows(t *testing.T) {
	const text = "[jobs.a]\nschedule = '@daily'\ncommand = '''\nprintf list\nexit 0'''\nenv = { A = \"\"\"one\ntwo\"\"\", B = \"kept\\r\\n\" }\n"
	t.Chdir(t.TempDir())
	unix, err := loadConfig(t, text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	windows, err := loadConfig(t, strings.ReplaceAll(text, "\n", "\r\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := windows.Jobs[0].Command; got[len(got)-1] != "printf list\nexit 0" {
		t.Errorf("command %q", got)
	}
	if env := windows.Jobs[0].Env; env["A"] != "one\ntwo" || env["B"] != "kept\r\n" {
		t.Errorf("env %q", env)
	}
	if unix.Digest() != windows.Digest() {
		t.Error("the line ends change the digest")
	}
	if _, err := loadConfig(t, "[jobs.a]\r\nschedule = '@daily'\r\ncommand = 7\r\n", Options{}); err == nil || !strings.HasPrefix(err.Error(), "jobs.toml:3:11: ") {
		t.Errorf("place of a fault: %v", err)
	}
}

// TestCheckReadsScriptsAndEnvFiles checks the warnings about scripts and env files that keep a job from starting, with their files and lines.
func TestCheckReadsScriptsAndEnvFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"script":    "#!/bin/sh\r\nexit 0\r\n",
		"env":       "A=1\nB=2 # two\nKEY=\"-----BEGIN\nsecret\"\n",
		"good":      "#!/bin/sh\n",
		"jobs.toml": "[defaults]\nschedule = '@daily'\n[jobs.a]\ncommand = ['" + at("script") + "']\nenv_file = '" + at("env") + "'\n[jobs.b]\ncommand = ['" + at("good") + "']\n",
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := Load(at("jobs.toml"), Options{Machine: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"script: the job cannot start here: its #! line ends in a carriage return",
		"env:2: the # and what follows are a part of the value of B here",
		`env:3: KEY: the closing " is missing in this line`,
		"env:4: no = in this line",
	}
	for _, w := range cfg.Warnings {
		if len(want) == 0 || !strings.HasPrefix(w.Message, dir+"/"+want[0]) || strings.Contains(w.Message, "secret") {
			t.Errorf("%d: %s", w.Line, w.Message)
			continue
		}
		want = want[1:]
	}
	if len(want) > 0 {
		t.Errorf("missing: %q", want)
	}
}

// FuzzRead reads any text as a configuration. It must not panic, and faults must have a place and one line. FuzzPlaces of package document compares the places
// with the result of the library.
// Promise: P8
func FuzzRead(f *testing.F) {
	archives, err := filepath.Glob("testdata/faults/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range append(archives, filepath.Join("..", "..", "jobs.example.toml")) {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
		if _, toml, found := strings.Cut(string(text), "-- jobs.toml --\n"); found {
			toml, _, _ = strings.Cut(toml, "-- ")
			f.Add(toml)
		}
	}
	source, err := os.ReadFile("document/place_test.go") // whose strings are hard to read
	if err != nil {
		f.Fatal(err)
	}
	for _, literal := range regexp.MustCompile(`"(\\.|[^"\\\n])*"`).FindAllString(string(source), -1) {
		if text, err := strconv.Unquote(literal); err == nil {
			f.Add(text)
		}
	}
	for _, c := range specified {
		f.Add(strings.ReplaceAll(c.file, ">", ""))
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := document.New("jobs.toml", text)
		l := newLoader(Options{Env: environment("A=b", "EMPTY=")})
		faults := file.Parse(document.NewBounds())
		if root, ok := file.Root(); ok {
			delete(root.Raw.(map[string]any), "include") // no files are read here
			c := assembleConfig(l.Reader, []document.Value{root}, newFileChecks(l.Report, l.options), l.options)
			faults = append(faults, l.Sorted(nil)...)
			_ = c.Digest()
		}
		for _, fault := range faults {
			if fault.Line < 1 || fault.Column < 1 || strings.ContainsAny(fault.Message, "\n\r") || fault.Message == "" {
				t.Errorf("%q", fault.String())
			}
		}
	})
}
