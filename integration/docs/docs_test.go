// Package docs_test holds the documentation to the code and to its own form: links resolve, named tests and files exist, decision records
// have their headings, and paragraphs and the cells of tables stay short.
package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the repository, seen from this package.
const root = "../.."

// decisions is the folder of the decision records.
const decisions = "docs/decisions/"

// The form of a page: a paragraph is at most five lines of 120 characters, a cell of a table at most 30 words, a decision record about 700 words.
const mostCharacters, mostWords, mostOfARecord = 5 * 120, 30, 750

// page is one Markdown file, without its code blocks.
type page struct {
	path  string
	lines []string
}

func pages(t *testing.T) []page {
	t.Helper()
	paths := []string{"README.md", "CHANGELOG.md", "SECURITY.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			paths = append(paths, filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator))))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var found []page
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, page{path, withoutCode(string(text))})
	}
	return found
}

func withoutCode(text string) []string {
	var lines []string
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code, line = !code, ""
		}
		if code {
			line = ""
		}
		lines = append(lines, line)
	}
	return lines
}

var link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

func TestLinksResolve(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		for i, line := range p.lines {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if err := resolve(p, m[1]); err != nil {
					t.Errorf("%s:%d: link %q: %v", p.path, i+1, m[1], err)
				}
			}
		}
	}
}

// resolve checks a relative link, and the heading that it names in another page or in this one.
func resolve(from page, target string) error {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return nil
	}
	path, heading, named := strings.Cut(target, "#")
	lines := from.lines
	if path != "" {
		file := filepath.Join(root, filepath.Dir(from.path), path)
		if _, err := os.Stat(file); err != nil {
			return err
		}
		if !named || !strings.HasSuffix(file, ".md") {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		lines = withoutCode(string(text))
	}
	if !slices.Contains(headings(lines), heading) {
		return fmt.Errorf("no heading %q", heading)
	}
	return nil
}

var noAnchor = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`)

// headings are the anchors of a page's headings.
func headings(lines []string) []string {
	var anchors []string
	for _, line := range lines {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = noAnchor.ReplaceAllString(strings.ToLower(title), "")
			anchors = append(anchors, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return anchors
}

var (
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	testCase  = regexp.MustCompile(`"([A-Z][A-Za-z0-9]+)"`)
	namedTest = regexp.MustCompile(`\b((?:Test|Fuzz)[A-Z]\w*)(\.\.\.)?`)
	namedCase = regexp.MustCompile("`/([A-Z][A-Za-z0-9]+)(\\.\\.\\.)?`")
)

// TestNamedTestsExist checks names such as TestXxx, `/Case` of a conformance suite, and with dots the beginning of several.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	tests, cases := map[string]bool{}, map[string]bool{}
	walkSource(t, func(path, text string) {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
				tests[m[1]] = true
			}
		}
		for _, m := range testCase.FindAllStringSubmatch(text, -1) {
			cases[m[1]] = true
		}
	})
	for _, p := range pages(t) {
		for i, line := range p.lines {
			for _, m := range namedTest.FindAllStringSubmatch(line, -1) {
				if !has(tests, m[1], m[2] != "" || strings.Contains(line, "-run ")) { // which takes the beginning of a name
					t.Errorf("%s:%d: there is no test %s", p.path, i+1, m[0])
				}
			}
			for _, m := range namedCase.FindAllStringSubmatch(line, -1) {
				if !has(cases, m[1], m[2] != "") {
					t.Errorf("%s:%d: no test has a case %s", p.path, i+1, m[0])
				}
			}
		}
	}
}

func has(names map[string]bool, name string, prefix bool) bool {
	if !prefix {
		return names[name]
	}
	for n := range names {
		if strings.HasPrefix(n, name) {
			return true
		}
	}
	return false
}

func walkSource(t *testing.T, f func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			f(path, string(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var namedFile = regexp.MustCompile(`\b(?:bench|cmd|docs|election|integration|internal|locking|scheduler)/[\w./-]+\.(?:go|lua|md|txt|sh|toml)\b`)

// TestNamedFilesExist checks the paths of source files; the changelog may name files that are gone.
func TestNamedFilesExist(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		for i, line := range p.lines {
			for _, file := range namedFile.FindAllString(link.ReplaceAllString(line, "]"), -1) {
				if _, err := os.Stat(filepath.Join(root, file)); err != nil && p.path != "CHANGELOG.md" {
					t.Errorf("%s:%d: there is no %s", p.path, i+1, file)
				}
			}
		}
	}
}

// TestCodeNamesPagesThatExist checks the pages that comments refer to.
func TestCodeNamesPagesThatExist(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`\bdocs/[\w/-]+\.md\b`)
	check := func(path, text string) {
		for _, file := range named.FindAllString(text, -1) {
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: there is no %s", path, file)
			}
		}
	}
	walkSource(t, check)
	for _, path := range scripts(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		check(path, string(text))
	}
}

func scripts(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "internal/lease/redis/lua/*.lua"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	return paths
}

// TestProtocolNamesEachScript keeps docs/protocol.md complete.
func TestProtocolNamesEachScript(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs/protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts(t) {
		if name := "internal/lease/redis/lua/" + filepath.Base(path); !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/protocol.md does not name %s", name)
		}
	}
}

// TestDecisionRecords checks the form of each record, and that the index has it.
func TestDecisionRecords(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile(filepath.Join(root, decisions, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages(t) {
		name, is := strings.CutPrefix(p.path, decisions)
		if !is || name == "README.md" {
			continue
		}
		number, title, ok := strings.Cut(strings.TrimPrefix(p.lines[0], "# "), " ")
		if !ok || !strings.HasPrefix(name, number+"-") {
			t.Errorf("%s: the title is %q", p.path, p.lines[0])
		}
		if !strings.Contains(string(index), fmt.Sprintf("- [%s %s](%s)\n", number, title, name)) {
			t.Errorf("%s is not in the index with its number and title", p.path)
		}
		want := []string{"context", "decision", "evidence", "rejected"}
		if got := headings(p.lines)[1:]; !slices.Equal(got, want) {
			t.Errorf("%s: headings %q, want %q", p.path, got, want)
		}
		if n := len(strings.Fields(strings.Join(p.lines, " "))); n > mostOfARecord {
			t.Errorf("%s: %d words, at most %d: split the record", p.path, n, mostOfARecord)
		}
	}
}

// TestPagesStayShort holds each page but the changelog to the form.
func TestPagesStayShort(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		if p.path == "CHANGELOG.md" {
			continue
		}
		paragraphs, cells := tooLong(p)
		if len(paragraphs) > 0 {
			t.Errorf("paragraphs of more than %d characters:\n%s", mostCharacters, strings.Join(paragraphs, "\n"))
		}
		if len(cells) > 0 {
			t.Errorf("cells of more than %d words:\n%s", mostWords, strings.Join(cells, "\n"))
		}
	}
}

var item = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)

// tooLong lists where the paragraphs and the cells of tables are that are too long. An item of a list is a paragraph.
func tooLong(p page) (paragraphs, cells []string) {
	start, length := 0, 0
	end := func() {
		if length > mostCharacters {
			paragraphs = append(paragraphs, fmt.Sprintf("%s:%d: %d characters", p.path, start, length))
		}
		length = 0
	}
	for i, line := range p.lines {
		text := strings.TrimSpace(line)
		switch {
		case text == "" || strings.HasPrefix(text, "#"):
			end()
			continue
		case strings.HasPrefix(text, "|"):
			end()
			for cell := range strings.SplitSeq(text, "|") {
				if n := len(strings.Fields(cell)); n > mostWords {
					cells = append(cells, fmt.Sprintf("%s:%d: %d words", p.path, i+1, n))
				}
			}
			continue
		case item.MatchString(line):
			end()
		}
		if length == 0 {
			start = i + 1
		}
		length += len([]rune(text)) + 1
	}
	end()
	return paragraphs, cells
}
