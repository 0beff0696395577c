// Package docpage compares the generated parts of the pages in docs/ with the code that generates them. Only tests use it.
//
// A generated part stands between two comments. The first one names the owner and the part:
//
//	<!-- generated: config redis -->
//	...
//	<!-- end -->
//
// The rest of a page is written by hand.
package docpage

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

var part = regexp.MustCompile(`(?s)<!-- generated: (\w+) ([^\n]*?) -->\n(.*?)<!-- end -->`)

// Sync compares the parts of an owner in the page at path with the wanted texts, and returns the differences. parts has the wanted text of each part by name.
// If write is set, Sync first writes the wanted texts to the page. Then the only differences are parts without a place in the page, and parts of the page
// without a wanted text.
func Sync(path, owner string, parts map[string]string, write bool) (faults []string, err error) {
	page, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	text, faults := replaceParts(string(page), owner, parts)
	if !write {
		return faults, nil
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // as the rest of docs
		return nil, fmt.Errorf("write the page: %w", err)
	}
	_, faults = replaceParts(text, owner, parts)
	return faults, nil
}

// replaceParts returns the page with the wanted texts, and the differences from the given page.
func replaceParts(page, owner string, parts map[string]string) (text string, faults []string) {
	seen := map[string]bool{}
	text = part.ReplaceAllStringFunc(page, func(found string) string {
		m := part.FindStringSubmatch(found)
		want, known := parts[m[2]]
		switch {
		case m[1] != owner:
			return found
		case !known:
			faults = append(faults, fmt.Sprintf("the part %q is nothing that the code has", m[2]))
			return found
		}
		seen[m[2]] = true
		if m[3] != want {
			faults = append(faults, fmt.Sprintf("the part %q is out of date; it is to be\n%s", m[2], want))
		}
		return fmt.Sprintf("<!-- generated: %s %s -->\n%s<!-- end -->", owner, m[2], want)
	})
	for name := range parts {
		if !seen[name] {
			faults = append(faults, fmt.Sprintf("the page has no part <!-- generated: %s %s -->", owner, name))
		}
	}
	slices.Sort(faults)
	return text, faults
}

// Table returns a table in Markdown. Cells may contain Markdown. Pipes in cells are escaped.
func Table(header []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		b.WriteString("|")
		for _, cell := range cells {
			b.WriteString(" " + strings.ReplaceAll(cell, "|", `\|`) + " |")
		}
		b.WriteString("\n")
	}
	line(header)
	line(slices.Repeat([]string{"---"}, len(header)))
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// MostWords is the maximum number of words in a cell of a table.
const MostWords = 30

// LongCells returns the cells with more than [MostWords] words.
func LongCells(rows [][]string) (long []string) {
	for _, cell := range slices.Concat(rows...) {
		if len(strings.Fields(cell)) > MostWords {
			long = append(long, cell)
		}
	}
	return long
}
