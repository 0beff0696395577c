package process

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// mostPrograms caps the length of a list of programs.
const mostPrograms = 5

// ListPrograms lists programs for display, each program once and at most five: "git, sleep (3), ...". A process chooses its own name, so unprintable
// characters are replaced by question marks.
func ListPrograms(programs []string) string {
	count := map[string]int{}
	for _, p := range programs {
		count[strings.Map(visibleRune, p)]++
	}
	names := slices.Sorted(maps.Keys(count))
	more := len(names) > mostPrograms
	names = names[:min(len(names), mostPrograms)]
	for i, name := range names {
		if n := count[name]; n > 1 {
			names[i] = fmt.Sprintf("%s (%d)", name, n)
		}
	}
	if more {
		names = append(names, "...")
	}
	return strings.Join(names, ", ")
}

func visibleRune(r rune) rune {
	if unicode.IsGraphic(r) && r != unicode.ReplacementChar {
		return r
	}
	return '?'
}
