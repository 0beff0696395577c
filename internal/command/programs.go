package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// mostPrograms caps the programs that a list names.
const mostPrograms = 5

// ListPrograms lists programs for people, each once, and of many only the first: "git, sleep (3), ...". A process chooses its own name, so a byte that is not
// visible in it becomes a question mark.
func ListPrograms(programs []string) string {
	count := map[string]int{}
	for _, p := range programs {
		count[strings.Map(visible, p)]++
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

func visible(r rune) rune {
	if unicode.IsGraphic(r) && r != unicode.ReplacementChar {
		return r
	}
	return '?'
}
