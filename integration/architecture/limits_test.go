package architecture

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// goals are the figures that each package is to reach, and stay within.
var goals = map[string]int{"cycle": 8, "fields": 25, "booleans": 4, "methods": 40, "function": 60}

// limits are the most that each package may have of each measure, by import path below the module.
type limits map[string]map[string]int

// table writes figures as a table that [parseLimits] reads.
func table(of limits) string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "package\t%s\n", strings.Join(measures, "\t"))
	var paths []string
	for path := range of {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		fmt.Fprint(w, path)
		for _, m := range measures {
			fmt.Fprintf(w, "\t%d", of[path][m])
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // to memory
	return b.String()
}

func parseLimits(text string) (limits, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	header := strings.Fields(lines[0])
	parsed := limits{}
	for n, line := range lines[1:] {
		cells := strings.Fields(line)
		if len(cells) != len(header) {
			return nil, fmt.Errorf("line %d has %d cells, and the header %d", n+2, len(cells), len(header))
		}
		parsed[cells[0]] = map[string]int{}
		for i, m := range header[1:] {
			var count int
			if _, err := fmt.Sscan(cells[i+1], &count); err != nil {
				return nil, fmt.Errorf("line %d, %s: %w", n+2, m, err)
			}
			parsed[cells[0]][m] = count
		}
	}
	return parsed, nil
}

// ratchetFaults compares the figures of a package with its limits: no figure grows, and a limit that is not reached any more is to be lowered.
func ratchetFaults(path string, found figures, limit map[string]int) (faults []string) {
	for _, m := range measures {
		most, got := limit[m], found[m]
		within := most
		if goal, ok := goals[m]; ok {
			within = max(most, goal)
		}
		switch {
		case got.count > within:
			faults = append(faults, fmt.Sprintf("%s: %s is %d, and was %d at most: %s", path, m, got.count, most, got.where))
		case got.count < most:
			faults = append(faults, fmt.Sprintf("%s: %s is %d, and %d are allowed: lower that with go test -C integration ./architecture -update", path, m, got.count, most))
		}
	}
	return faults
}
