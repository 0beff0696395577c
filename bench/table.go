package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// table prints rows of cells, the first column to the left and the others to the right.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	wide := 0
	for _, r := range rows {
		wide = max(wide, len(r[0]))
	}
	for _, r := range rows {
		fmt.Fprintf(t, "%-*s\t%s\t\n", wide, r[0], strings.Join(r[1:], "\t"))
	}
	return t.Flush()
}

func median[T cmp.Ordered](all []T) T {
	var zero T
	if len(all) == 0 {
		return zero
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// ratios divides round by round: a disturbance of the machine in a round affected both.
func ratios(of, by []float64) []float64 {
	var all []float64
	for i := range min(len(of), len(by)) {
		if by[i] != 0 {
			all = append(all, of[i]/by[i])
		}
	}
	return all
}

// spread is a median with the smallest and the largest beside it.
func spread(all []float64) string {
	if len(all) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f (%.2f-%.2f)", median(all), slices.Min(all), slices.Max(all))
}

// verdict says whether a target is met.
func verdict(w io.Writer, target string, value float64, met bool) {
	word := "not met"
	if met {
		word = "met"
	}
	fmt.Fprintf(w, "  target: %s: %.2f, %s\n", target, value, word)
}
