package schema

import (
	"slices"
	"strings"
)

// Nearest returns the candidate with the fewest edits from word, or "" if none is close enough.
func Nearest(word string, candidates []string) string {
	best, least := "", max(1, len(word)/2)+1
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if len(word)-len(c) >= least { // the lengths alone differ by too many edits
			continue
		}
		if d := Edits(strings.ToLower(word), c); d < least {
			best, least = c, d
		}
	}
	return best
}

// Edits returns the optimal string alignment distance, which counts insertions, deletions, substitutions and swaps of adjacent bytes.
func Edits(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
