package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/testtier"
)

// A corpusFile is a file of the corpus, with a verdict for each entry: '+' can be carried, '-' cannot.
type corpusFile struct {
	origin, path, kind string
	flags              []string
	verdicts           string
	lines              []string // the text
	entries            []string // in a crontab, the lines with a verdict
}

func readCorpus(t *testing.T) (files []corpusFile) {
	t.Helper()
	names, err := filepath.Glob("testdata/corpus/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatal("no corpus", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var f *corpusFile
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if head, ok := strings.CutPrefix(line, "== "); ok {
				words := strings.Fields(head)
				files = append(files, corpusFile{origin: words[0], path: words[1], kind: words[3], flags: words[4:]})
				f = &files[len(files)-1]
				continue
			}
			f.addLine(t, line)
		}
	}
	return files
}

func (f *corpusFile) addLine(t *testing.T, line string) {
	t.Helper()
	switch mark, text, _ := strings.Cut(line, " "); {
	case mark == "|" || mark == ".":
		f.lines = append(f.lines, text)
	case f.isCrontab():
		f.lines, f.entries, f.verdicts = append(f.lines, text), append(f.entries, text), f.verdicts+mark
	case strings.Trim(mark, "+-") == "":
		f.verdicts += mark
	default:
		t.Fatalf("%s: a line without a mark: %q", f.origin, line)
	}
}

func (f *corpusFile) isCrontab() bool { _, ok := dialects()[f.kind]; return ok }

// convert imports the file as a user would who knows what it is.
func (f *corpusFile) convert(t *testing.T) (*conversion, *Result) {
	t.Helper()
	o := Options{Source: f.kind, Timezone: "Europe/Berlin"}
	if f.isCrontab() {
		o.Source, o.Dialect = "crontab", f.kind
	}
	end := "\n"
	for _, flag := range f.flags {
		switch is := flag == "system"; flag {
		case "system", "user":
			o.System = &is
		case "unfinished":
			end = ""
		}
	}
	c, r, err := convert([]File{{f.path, strings.Join(f.lines, "\n") + end}}, o)
	if err != nil {
		t.Fatalf("%s: %v", f.origin, err)
	}
	return c, r
}

// TestCorpus compares what the importer carries with the verdicts that were given by hand before. Nothing that cannot be carried is carried, and at least 95 %
// of the rest is.
func TestCorpus(t *testing.T) {
	t.Parallel()
	files := readCorpus(t)
	kinds := map[string][3]int{} // files, can be carried, are carried
	for _, f := range files {
		c, r := f.convert(t)
		if len(c.entries) != len(f.verdicts) {
			t.Errorf("%s: %d entries, not %d:\n%s", f.origin, len(c.entries), len(f.verdicts), r.Text)
			continue
		}
		kind := f.kind
		if f.isCrontab() {
			kind = "crontab"
		}
		n := kinds[kind]
		n[0]++
		for i, e := range c.entries {
			can, is := f.verdicts[i] == '+', e.refused == ""
			n[1], n[2] = n[1]+count(can), n[2]+count(can && is)
			switch {
			case is && !can:
				t.Errorf("%s: carried, although it cannot be: %q", f.origin, e.source)
			case can && !is:
				t.Logf("%s: not carried: %q: %s", f.origin, e.source, e.refused)
			}
		}
		kinds[kind] = n
	}
	could, did := 0, 0
	for _, kind := range sortedKeys(kinds) {
		n := kinds[kind]
		t.Logf("%-10s %3d files, %3d entries can be carried, %3d are", kind, n[0], n[1], n[2])
		could, did = could+n[1], did+n[2]
	}
	t.Logf("together   %3d files, %3d entries can be carried, %3d are: %.1f %%", len(files), could, did, 100*float64(did)/float64(could))
	if len(files) < 300 || did*100 < could*95 {
		t.Errorf("%d of %d entries of %d files are carried; want 95 %% of 300 files", did, could, len(files))
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// TestCorpusInstants compares the ticks of each carried line of a crontab with the rules of its dialect, minute by minute.
func TestCorpusInstants(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range readCorpus(t) {
		if !f.isCrontab() {
			continue
		}
		c, r := f.convert(t)
		cfg, err := config.Parse("import", r.Text, config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range c.entries {
			fields, ok := fiveFields(f.entries[i])
			if key := f.kind + fmt.Sprint(fields); e.refused != "" || !ok || seen[key] {
				continue
			} else {
				seen[key] = true
			}
			compareTicks(t, f.origin+" "+f.entries[i], jobOf(t, cfg, e.name), newOracle(t, f.kind, fields), 60, time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC))
		}
	}
	if len(seen) < 80 {
		t.Errorf("only %d different schedules", len(seen))
	}
}
