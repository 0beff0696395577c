package architecture

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostRiddles and mostTells bound the hits of the two patterns below in the whole tree: clauses whose subject is a pronoun, and the vague verb.
// The thing that acts is the subject, and its action has a word of its own: it returns, reports, publishes, records.
const mostRiddles, mostTells = 6, 4

var (
	riddle = regexp.MustCompile(`\b[Ww]hoever\b|\b[Nn]obody\b|(?:^|[.;:(] )(?:Who|What|who|what)\b|` +
		`\b(?:what|who) (?:can|could|does|do|did|had|has|have|is|are|may|might|must|was|were|will|would|[a-z]+s)\b`)
	tells = regexp.MustCompile(`\b[Tt]ells?\b`)
)

// TestSentencesNameWhoActs counts both over all comments and pages, but for the changelog.
func TestSentencesNameWhoActs(t *testing.T) {
	t.Parallel()
	var riddles, told []string
	eachComment(t, func(place, line string) {
		for range riddle.FindAllString(line, -1) {
			riddles = append(riddles, place+": "+line)
		}
		for range tells.FindAllString(line, -1) {
			told = append(told, place+": "+line)
		}
	})
	for _, c := range []struct {
		what  string
		found []string
		most  int
	}{{"clauses with who, whoever, what or nobody as a subject", riddles, mostRiddles}, {"sentences with tell", told, mostTells}} {
		slices.Sort(c.found)
		if n := len(c.found); n > c.most {
			t.Errorf("%d %s, at most %d:\n%s", n, c.what, c.most, strings.Join(c.found, "\n"))
		}
		t.Logf("%d %s", len(c.found), c.what)
	}
}

// eachComment calls f for each line of a comment in Go or Lua, and for each line of a page.
func eachComment(t *testing.T, f func(place, line string)) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.Name() == ".git" {
				return filepath.SkipDir
			}
			return err
		}
		switch filepath.Ext(path) {
		case ".go":
			return eachGoComment(path, f)
		case ".lua":
			return eachLine(path, func(line string) string { _, comment, _ := strings.Cut(line, "--"); return comment }, f)
		case ".md":
			if d.Name() == "CHANGELOG.md" {
				return nil
			}
			return eachLine(path, func(line string) string { return line }, f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func eachGoComment(path string, f func(place, line string)) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			for i, line := range strings.Split(comment.Text, "\n") {
				at := files.Position(comment.Pos())
				f(fmt.Sprintf("%s:%d", path, at.Line+i), strings.TrimLeft(line, "/* \t"))
			}
		}
	}
	return nil
}

func eachLine(path string, comment func(line string) string, f func(place, line string)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for i, line := range strings.Split(string(text), "\n") {
		if c := strings.TrimSpace(comment(line)); c != "" {
			f(fmt.Sprintf("%s:%d", path, i+1), c)
		}
	}
	return nil
}
