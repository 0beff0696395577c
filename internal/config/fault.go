package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a configuration, at the place where it has to be mended.
type Fault struct {
	// File is the file's name as it was reached: PATH itself, or PATH's folder and what an include named.
	File string `json:"file"`
	// Line and Column count from 1; columns count characters, as editors do.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Message is one line that names the mistake and the remedy. It never holds a value taken from the environment, but for the names of included
	// files.
	Message string `json:"message"`
	// Warning marks a value that is accepted, but hardly meant.
	Warning bool `json:"warning,omitempty"`
}

// String returns the fault as compilers write theirs: FILE:LINE:COL: message.
func (f Fault) String() string {
	if f.Warning {
		return f.Place() + ": warning: " + f.Message
	}
	return f.Place() + ": " + f.Message
}

// Place is FILE:LINE:COL.
func (f Fault) Place() string { return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column) }

// Faults are all the faults of a configuration, and its warnings, in the order of the files and their lines.
type Faults []Fault

// Error joins the faults, one a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].String()
	}
	return strings.Join(lines, "\n")
}

// sorted returns the faults in the order of files (as they were read), lines and columns, each once: a fault in
// [defaults] is met again in every job.
func (f Faults) sorted(files map[string]int) Faults {
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(
			cmp.Compare(files[a.File], files[b.File]),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return slices.Compact(f)
}

// split parts the warnings from the faults.
func (f Faults) split() (faults, warnings Faults) {
	for _, one := range f {
		if one.Warning {
			warnings = append(warnings, one)
		} else {
			faults = append(faults, one)
		}
	}
	return faults, warnings
}

// nearest returns the candidate with the fewest edits between it and word, and "" if none is close enough to be meant.
func nearest(word string, candidates []string) string {
	best, least := "", max(1, len(word)/2)+1
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if len(word)-len(c) >= least { // so many characters are too many at least
			continue
		}
		if d := edits(strings.ToLower(word), c); d < least {
			best, least = c, d
		}
	}
	return best
}

// edits is the optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
func edits(a, b string) int {
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
