package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	c, r, err := convert([]File{{f.name(), strings.Join(f.lines, "\n") + end}}, o)
	if err != nil {
		t.Fatalf("%s: %v", f.origin, err)
	}
	return c, r
}

// name returns the name of the file. Units are the output of systemctl cat.
func (f *corpusFile) name() string {
	if f.kind == "systemd" {
		return stdin
	}
	return f.path
}

// TestCorpusWithoutFlags imports the crontabs without --system. Each crontab is read in its own format, or refused as a whole.
func TestCorpusWithoutFlags(t *testing.T) {
	t.Parallel()
	right, refused := 0, 0
	for _, f := range readCorpus(t) {
		if !f.isCrontab() {
			continue
		}
		c := &conversion{Options: Options{Source: "crontab", Dialect: f.kind}}
		system := systemPath.MatchString(f.path)
		for _, flag := range f.flags {
			system = system && flag != "user" || flag == "system"
		}
		switch guess, err := c.isSystem(File{f.path, strings.Join(f.lines, "\n")}); {
		case err != nil:
			refused++
		case guess != system:
			t.Errorf("%s %s: read as a system crontab: %t, and it is one: %t", f.origin, f.path, guess, system)
		default:
			right++
		}
	}
	t.Logf("%d right, %d refused", right, refused)
	if right < 200 {
		t.Errorf("only %d files are read without a flag", right)
	}
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

var sourceSchedule = regexp.MustCompile(`schedule: "([^"]+)"$`)

// TestCorpusInstants compares the ticks of each carried line of a crontab, and of each CronJob, with the rules of its dialect, minute by minute. The events of
// timers are among those that TestCalendarEvents compares.
func TestCorpusInstants(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	recorded, err := os.ReadFile("testdata/systemd/recorded.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range readCorpus(t) {
		c, r := f.convert(t)
		if !f.isCrontab() && f.kind != "kubernetes" {
			compareEventsOf(t, c, string(recorded))
			continue
		}
		cfg, err := config.Parse("import", r.Text, config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range c.entries {
			line := strings.Join(e.source, "")
			if f.isCrontab() {
				line = f.entries[i]
			} else if m := sourceSchedule.FindStringSubmatch(line); m != nil {
				line = m[1] + " command"
			}
			fields, ok := fiveFields(line)
			if key := f.kind + fmt.Sprint(fields); e.refused != "" || !ok || seen[key] {
				continue
			} else {
				seen[key] = true
			}
			compareTicks(t, f.origin+" "+line, jobOf(t, cfg, e.name), newOracle(t, f.kind, fields), 1000, time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC))
		}
	}
	if len(seen) < 80 {
		t.Errorf("only %d different schedules", len(seen))
	}
}

// compareEventsOf checks that the events of carried timers are recorded.
func compareEventsOf(t *testing.T, c *conversion, recorded string) {
	t.Helper()
	for _, e := range c.entries {
		for _, line := range e.source {
			if event, ok := strings.CutPrefix(line, "OnCalendar="); ok && e.refused == "" && !strings.Contains(recorded, " "+event+"\n") {
				t.Errorf("%s: record.sh has not recorded %q", e.place, event)
			}
		}
	}
}

// TestCorpusJudged compares what jobs of the corpus run, and as whom, where and with which variables, with what was written down by hand from their text.
func TestCorpusJudged(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/corpus/judged.lst")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	key := ""
	for line := range strings.Lines(string(text)) {
		if head, ok := strings.CutPrefix(line, "== "); ok {
			key = strings.TrimSpace(head)
		} else if key != "" {
			want[key] += line
		}
	}
	if len(want) < 60 {
		t.Errorf("only %d entries are judged", len(want))
	}
	for _, f := range readCorpus(t) {
		c, r := f.convert(t)
		cfg, err := config.Parse("import", r.Text, config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range c.entries {
			key := fmt.Sprintf("%s %s %d", f.origin, f.path, i+1)
			judged, ok := want[key]
			delete(want, key)
			switch {
			case !ok:
			case e.refused != "":
				t.Errorf("%s: not carried: %s", key, e.refused)
			default:
				if got := describeJob(jobOf(t, cfg, e.name)); got != judged {
					t.Errorf("%s: it is\n%sand was judged\n%s", key, got, judged)
				}
			}
		}
	}
	for key := range want {
		t.Errorf("%s is not in the corpus", key)
	}
}

// describeJob returns the lines of a job in the form of judged.lst.
func describeJob(job *config.Job) string {
	var b strings.Builder
	command := strings.TrimSuffix(strings.Join(job.Command, " "), "\n")
	dir := job.Dir
	if after, home := strings.CutPrefix(job.Command[len(job.Command)-1], "cd \"${HOME:?}\" || exit\n"); home && dir == "" {
		dir, command = "~", strings.Join(append(slices.Clone(job.Command[:len(job.Command)-1]), after), " ")
	}
	for _, field := range [][2]string{{"user", job.User}, {"dir", dir}, {"env_file", job.EnvFile}} {
		if field[1] != "" {
			fmt.Fprintf(&b, "%s %s\n", field[0], field[1])
		}
	}
	for _, name := range sortedKeys(job.Env) {
		fmt.Fprintf(&b, "env %s=%s\n", name, job.Env[name])
	}
	fmt.Fprintf(&b, "run %s\n", strings.ReplaceAll(command, "\n", `\n`))
	return b.String()
}
