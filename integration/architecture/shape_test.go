package architecture

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// shape has the figures of how the product is cut and how it reads, and the most that each may be. A change that raises one says in its commit why; one that lowers it
// lowers the bound. docs/decisions/044-shape.md has the history.
var shape = []struct {
	name string
	most float64
	of   func(*product) float64
}{
	{"lines", 77_600, func(p *product) float64 { return float64(p.lines) }},
	{"files", 356, func(p *product) float64 { return float64(len(p.sizes)) }},
	{"files below 60 lines", 36, (*product).smallFiles},
	{"package clauses and imports, % of lines", 5.75, func(p *product) float64 { return 100 * float64(p.heads) / float64(p.lines) }},
	{"unexported functions named by one word, %", 7.4, (*product).oneWordNames},
	{"functions that share their name with five others or more", 266, (*product).sharedNames},
	{"comments: X is how, when, why, whether, which, per 1,000", 1, constructionFigure(0)},
	{"comments: that of, those of, of which, is of, per 1,000", 1, constructionFigure(1)},
	{"comments: where for if, per 1,000", 1, constructionFigure(2)},
	{"comments: else as half a sentence, per 1,000", 1, constructionFigure(3)},
	{"comments: has it stopped, per 1,000", 2, constructionFigure(4)},
	{"comments: who, what, nobody as the subject, and tell, per 1,000", 1, constructionFigure(5)},
}

// constructions are phrases that a reader has to read twice.
var constructions = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\b(is|are|was|were|be) (how|when|why|whether|which|whose|for how|from when|until when|since when|of which|in what|by which|in which|on which)\b`),
	regexp.MustCompile(`(?i)\b(that of|those of|of which|none of|is of|are of|as those)\b`),
	regexp.MustCompile(`(?i)\bwhere (it|they|there|a|an|no|none|one|nothing|that|this|these|all|each|neither)\b`),
	regexp.MustCompile(`(?i)(^|[.,;:(] ?)(or )?else\b`),
	regexp.MustCompile(`(?i)\b(has|have|had) (the |a |an |its |it |them )?[a-z]+ (know|known|called|run|wait|stop|skipped|stopped|restored|read|end|asked|killed)\b( by)?`),
	regexp.MustCompile(`(?i)(^|\. )(who(ever)?|nobody|what) [a-z]+|\b(tells?|told|heard?|hears) (of|that|whether|how|who|what)\b`),
}

// elsewhere has the most of each construction per 1,000 comments or sentences in what is no product.
var elsewhere = []struct {
	name string
	most [6]float64
	of   func(*product) []string
}{
	{"comments of tests", [6]float64{12, 30, 12, 9, 7, 8.2}, func(p *product) []string { return p.tests }},
	{"sentences of pages", [6]float64{0.5, 2, 2, 0.5, 1.5, 3.5}, func(p *product) []string { return p.pages }},
	{"comments of scripts", [6]float64{5.5, 0, 0, 0, 16.5, 0}, func(p *product) []string { return p.scripts }},
}

// TestShape holds the product to the figures, and all prose to the constructions.
func TestShape(t *testing.T) {
	t.Parallel()
	p := readProduct(t)
	hold := func(name string, got, most float64) {
		t.Logf("%-65s %9.1f, at most %.1f", name, got, most)
		if got > most {
			t.Errorf("%s: %.1f, at most %.1f", name, got, most)
		}
	}
	for _, figure := range shape {
		hold(figure.name, figure.of(p), figure.most)
	}
	for _, prose := range elsewhere {
		if len(prose.of(p)) < 50 {
			t.Fatalf("%d %s are found, too few to be all", len(prose.of(p)), prose.name)
		}
		for k, most := range prose.most {
			hold(fmt.Sprintf("%s: construction %d, per 1,000", prose.name, k), perThousand(k, prose.of(p)), most)
		}
	}
	for k := range constructions {
		t.Logf("construction %d:\n%s", k, strings.Join(hits(k, slices.Concat(p.comments, p.tests, p.pages, p.scripts)), "\n"))
	}
}

// TestConstructionsAreFound shows that each construction is found where it stands, and not in plain sentences.
func TestConstructionsAreFound(t *testing.T) {
	t.Parallel()
	for i, text := range []string{"age is how long it waits", "the lease of the job and that of the pool", "the zone, where there is one", "the tick, else nil", "it has the job stopped",
		"Nobody waits for it."} {
		for k := range constructions {
			if got := countsAs(k, text); got != (k == i) {
				t.Errorf("%q as construction %d: %v", text, k, got)
			}
		}
	}
	for k := range constructions {
		if text := "A lease ends at its deadline. The keeper has been stopped by its owner."; countsAs(k, text) {
			t.Errorf("%q is construction %d", text, k)
		}
	}
}

// countsAs reports whether a comment has a construction.
func countsAs(construction int, text string) bool {
	return slices.ContainsFunc(constructions[construction].FindAllString(text, -1), func(hit string) bool { return !strings.HasSuffix(hit, " by") })
}

// product has the counts of the Go files that are built into the program and the library, and the prose of the whole repository. A text has its
// place before a tab.
type product struct {
	lines, heads int
	sizes        []int
	functions    []string
	comments     []string // each block of lines, and each comment behind code
	tests        []string // the same of tests and their helpers
	scripts      []string // the same of Lua
	pages        []string // sentences of Markdown, but for the changelog
}

// outside are folders whose files are no product.
var outside = []string{"bench", "integration", "packaging", "locktest", "journaltest", "leasetest", "redistest", "testdata", "findings"}

func readProduct(t *testing.T) *product {
	t.Helper()
	p := &product{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case d.IsDir() || !slices.Contains([]string{".go", ".lua", ".md"}, filepath.Ext(path)) || d.Name() == "CHANGELOG.md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := strings.Split(string(text), "\n")
		within := strings.Split(filepath.ToSlash(path), "/")
		switch {
		case strings.HasSuffix(path, ".md"):
			p.pages = append(p.pages, sentences(path, lines)...)
		case strings.HasSuffix(path, ".lua"):
			p.scripts = append(p.scripts, commentsOf(path, lines, "--")...)
		case strings.HasSuffix(path, "_test.go"), slices.ContainsFunc(outside, func(folder string) bool { return slices.Contains(within, folder) }):
			p.tests = append(p.tests, commentsOf(path, lines, "//")...)
		default:
			p.add(path, lines)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.sizes) < 100 {
		t.Fatalf("%d files are found, too few to be all", len(p.sizes))
	}
	return p
}

var (
	function = regexp.MustCompile(`^func (?:\([^)]*\) )?(\w+)`)
	behind   = regexp.MustCompile("[^:\"'`]\\s+(?://|--) (.*)$")
	oneWord  = regexp.MustCompile(`^[a-z0-9]+$`)
)

func (p *product) add(path string, lines []string) {
	p.lines, p.sizes = p.lines+len(lines), append(p.sizes, len(lines))
	p.comments = append(p.comments, commentsOf(path, lines, "//")...)
	imports := false
	for _, line := range lines {
		if strings.HasPrefix(line, "package ") || strings.HasPrefix(line, "import ") || imports {
			p.heads++
		}
		imports = imports && line != ")" || strings.HasPrefix(line, "import (")
		if m := function.FindStringSubmatch(line); m != nil {
			p.functions = append(p.functions, m[1])
		}
	}
}

// commentsOf returns each block of lines that begin with the marker of a comment, and each comment behind code.
func commentsOf(path string, lines []string, marker string) (comments []string) {
	block := ""
	end := func() {
		if block != "" {
			comments = append(comments, block)
		}
		block = ""
	}
	for i, line := range lines {
		if s := strings.TrimSpace(line); strings.HasPrefix(s, marker) && !strings.HasPrefix(s, "//go:") {
			if block == "" {
				block = fmt.Sprintf("%s:%d\t%s", path, i+1, strings.TrimSpace(s[2:]))
			} else {
				block += " " + strings.TrimSpace(s[2:])
			}
			continue
		}
		end()
		if m := behind.FindStringSubmatchIndex(line); m != nil && strings.Count(line[:m[0]], `"`)%2 == 0 && strings.Count(line[:m[0]], "`")%2 == 0 {
			comments = append(comments, fmt.Sprintf("%s:%d\t%s", path, i+1, line[m[2]:]))
		}
	}
	end()
	return comments
}

// sentences returns the sentences of a page, those of a cell of a table on their own, without its code.
func sentences(path string, lines []string) (all []string) {
	text, from, code := "", 0, false
	end := func() {
		for sentence := range strings.SplitSeq(text, ". ") {
			if s := strings.TrimSpace(sentence); s != "" {
				all = append(all, fmt.Sprintf("%s:%d\t%s", path, from, s))
			}
		}
		text = ""
	}
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		code = code != fence
		if fence || code {
			end()
			continue
		}
		for n, part := range strings.Split(line, "|") {
			if n > 0 || strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(strings.TrimSpace(line), "- ") {
				end()
			}
			if text == "" {
				from = i + 1
			}
			text += strings.TrimSpace(part) + " "
		}
	}
	end()
	return all
}

func (p *product) smallFiles() float64 {
	return float64(len(slices.DeleteFunc(slices.Clone(p.sizes), func(n int) bool { return n >= 60 })))
}

func (p *product) oneWordNames() float64 {
	all, one := 0, 0
	for _, name := range p.functions {
		if !unicode.IsUpper(rune(name[0])) {
			all++
			if oneWord.MatchString(name) {
				one++
			}
		}
	}
	return 100 * float64(one) / float64(all)
}

func (p *product) sharedNames() float64 {
	count := map[string]int{}
	for _, name := range p.functions {
		count[name]++
	}
	sum := 0
	for n := range maps.Values(count) {
		if n > 5 {
			sum += n
		}
	}
	return float64(sum)
}

// constructionFigure returns the figure of a construction.
func constructionFigure(k int) func(*product) float64 {
	return func(p *product) float64 { return perThousand(k, p.comments) }
}

func perThousand(k int, texts []string) float64 {
	return 1000 * float64(len(hits(k, texts))) / float64(len(texts))
}

// hits returns the texts with a construction.
func hits(k int, texts []string) (found []string) {
	for _, each := range texts {
		if _, text, _ := strings.Cut(each, "\t"); countsAs(k, text) {
			found = append(found, each)
		}
	}
	return found
}
