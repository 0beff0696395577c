package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one mistake in a configuration, with the place at which to correct it.
type Fault struct {
	// File is the path by which the file was found: the path that the user gave, or the folder of the including file joined with the included name.
	File string `json:"file"`
	// Line and Column count from 1. Columns count characters, as editors do.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Message is one line with the mistake and the remedy. It contains no value from the environment, except in the names of included files.
	Message string `json:"message"`
	// Warning marks a valid value that is probably a mistake.
	Warning bool `json:"warning,omitempty"`
}

// String returns the fault in the format of compilers, FILE:LINE:COL: message.
func (f Fault) String() string {
	if f.Warning {
		return f.Place() + ": warning: " + f.Message
	}
	return f.Place() + ": " + f.Message
}

// Place returns FILE:LINE:COL.
func (f Fault) Place() string { return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column) }

// Faults are all faults and warnings of a configuration, in the order of the files and their lines.
type Faults []Fault

// Error joins the faults, one per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].String()
	}
	return strings.Join(lines, "\n")
}

// Split separates faults and warnings.
func (f Faults) Split() (faults, warnings Faults) {
	for _, one := range f {
		if one.Warning {
			warnings = append(warnings, one)
		} else {
			faults = append(faults, one)
		}
	}
	return faults, warnings
}

// Report collects the faults and warnings of a configuration up to a limit, and counts all of them. The zero value is empty.
type Report struct {
	found              Faults
	failures, warnings int // include faults and warnings beyond the limit
}

// Add adds a fault, up to the limit.
func (r *Report) Add(f Fault) {
	if r.failures++; r.failures <= maxFaults {
		r.found = append(r.found, f)
	}
}

// Skip reports whether the limit of faults is exceeded. If so, it counts one more fault, which the caller then need not build. This saves the search for the
// position of the fault, whose cost grows with the file.
func (r *Report) Skip() bool {
	if r.Full() {
		r.failures++
		return true
	}
	return false
}

// Fault adds a fault at a value.
func (r *Report) Fault(v Value, format string, args ...any) {
	if !r.Skip() {
		r.Add(v.src.newFault(v.at.val, format, args...))
	}
}

// Mistyped adds the fault of a value with the wrong type.
func (r *Report) Mistyped(v Value, want string) {
	r.Fault(v, "%q must be %s; this is %s", v.Name, want, v.Kind())
}

// Warn adds a warning at a value.
func (r *Report) Warn(v Value, format string, args ...any) {
	if r.warnings++; r.warnings > maxFaults {
		return
	}
	f := v.src.newFault(v.at.val, format, args...)
	f.Warning = true
	r.found = append(r.found, f)
}

// Full reports whether the limit of faults is exceeded.
func (r *Report) Full() bool { return r.failures > maxFaults }

// FullOfWarnings reports whether the limit of warnings is reached.
func (r *Report) FullOfWarnings() bool { return r.warnings >= maxFaults }

// Failures returns the number of faults, without warnings.
func (r *Report) Failures() int { return r.failures }

// Sorted returns faults and warnings by file, line and column. files maps the name of a file to its position. Sorted removes duplicates, because a fault in
// [defaults] is found again for every job.
func (r *Report) Sorted(files map[string]int) Faults {
	found := r.found
	if r.Full() {
		found = append(found, Fault{File: found[0].File, Line: 1, Column: 1,
			Message: fmt.Sprintf("more than %d faults; these are the first that were found", maxFaults)})
	}
	slices.SortStableFunc(found, func(a, b Fault) int {
		return cmp.Or(
			cmp.Compare(files[a.File], files[b.File]),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return slices.Compact(found)
}
