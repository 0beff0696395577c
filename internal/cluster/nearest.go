package cluster

import (
	"slices"
	"strings"
)

// Nearest returns the name that a user most likely meant by a mistyped one; "" if none is close. A name is close if typed is a prefix of it, or if at most a
// third of its letters differ.
func Nearest(typed string, names []string) string {
	typed = strings.ToLower(typed)
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	for most := 0; most <= max(1, len(typed)/3); most++ {
		for _, name := range names {
			if lower := strings.ToLower(name); strings.HasPrefix(lower, typed) || editDistance(typed, lower) <= most {
				return name
			}
		}
	}
	return ""
}

// editDistance returns the Levenshtein distance: the number of bytes to insert, delete or replace to turn one text into the other.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // distances from a's first i bytes to each prefix of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			if a[i] == b[j] {
				row[j+1] = diagonal
			} else {
				row[j+1] = 1 + min(diagonal, above, row[j])
			}
			diagonal = above
		}
	}
	return row[len(b)]
}
