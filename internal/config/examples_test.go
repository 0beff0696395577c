package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// examples returns the texts that users copy, by file: the TOML blocks of the README and the pages, jobs.example.toml, and the file that init writes.
func examples(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal("no pages", err)
	}
	all := map[string][]string{}
	for _, name := range append(files, "../../README.md", "../../jobs.example.toml", "../../cmd/cronclave/init.toml") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".toml") {
			all[name] = []string{string(text)}
			continue
		}
		for _, block := range regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			all[name] = append(all[name], block[1])
		}
	}
	return all
}

// loadExample loads an example, with the clock in the year in which it was written, and reports its faults.
func loadExample(t *testing.T, name, text string) (warnings string) {
	t.Helper()
	t.Chdir(t.TempDir())
	c, err := loadConfig(t, text, Options{
		Env: environment("ZONE=a", "DATABASE=reports", "HEARTBEAT_URL=https://hc.example/ping/a"),
		Now: func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) },
	})
	if err != nil {
		t.Errorf("%s: %v\n%s", filepath.Base(name), err, text)
		return ""
	}
	return c.Warnings.Error()
}

func TestExamples(t *testing.T) {
	for name, texts := range examples(t) {
		for _, text := range texts {
			if w := loadExample(t, name, text); w != "" && !strings.Contains(w, "no jobs") {
				t.Errorf("%s: %s\n%s", filepath.Base(name), w, text)
			}
		}
	}
}

var (
	commented = regexp.MustCompile(`^# ?(\[[\w.-]+\]|[\w.]+ *= *[\["'{0-9tf].*)$`)
	tableLine = regexp.MustCompile(`^\[`)
	keyOfLine = regexp.MustCompile(`^([\w.]+) *=`)
)

// TestCommentedExamples removes the comment sign from each group of TOML lines, as users do. The result must have no faults.
func TestCommentedExamples(t *testing.T) {
	runs := 0
	for name, texts := range examples(t) {
		for _, text := range texts {
			lines := strings.Split(text, "\n")
			for from := 0; from < len(lines); from++ {
				to := from
				for to < len(lines) && commented.MatchString(lines[to]) {
					to++
				}
				if to == from {
					continue
				}
				runs++
				loadExample(t, name, strings.Join(uncomment(lines, from, to), "\n"))
				from = to
			}
		}
	}
	if runs < 8 {
		t.Errorf("only %d runs of commented lines were found", runs)
	}
}

// uncomment removes the comment sign from some lines. Lines may be alternatives: if a table then has a key several times, the last uncommented one stays.
func uncomment(lines []string, from, to int) []string {
	out := append([]string(nil), lines...)
	for n := from; n < to; n++ {
		out[n] = commented.FindStringSubmatch(lines[n])[1]
		key := keyOfLine.FindString(out[n])
		for i := n - 1; i >= 0 && !tableLine.MatchString(out[i+1]) && key != ""; i-- {
			if keyOfLine.FindString(out[i]) == key {
				out[i] = ""
			}
		}
		for i := n + 1; i < len(out) && !tableLine.MatchString(out[i]) && key != ""; i++ {
			if keyOfLine.FindString(out[i]) == key {
				out[i] = ""
			}
		}
	}
	return out
}
