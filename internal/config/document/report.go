package document

import (
	"cmp"
	"fmt"
	"slices"
)

// Report gathers the faults of a configuration, as many as are reported, and counts all. The zero value is empty.
type Report struct {
	found              Faults
	failures, warnings int // those that are not kept among them
}

// Add adds a fault, unless there are many already.
func (r *Report) Add(f Fault) {
	if r.failures++; r.failures <= maxFaults {
		r.found = append(r.found, f)
	}
}

// Skip counts a fault for which there is no room, and returns whether there is none. The place and the words of a fault cost more the longer the file is.
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
		r.Add(v.src.fault(v.at.val, format, args...))
	}
}

// Mistyped adds the fault that a value has the wrong type.
func (r *Report) Mistyped(v Value, want string) {
	r.Fault(v, "%q must be %s; this is %s", v.Name, want, v.Kind())
}

// Warn adds a warning at a value.
func (r *Report) Warn(v Value, format string, args ...any) {
	if r.warnings++; r.warnings > maxFaults {
		return
	}
	f := v.src.fault(v.at.val, format, args...)
	f.Warning = true
	r.found = append(r.found, f)
}

// Full returns whether no more faults are reported.
func (r *Report) Full() bool { return r.failures > maxFaults }

// FullOfWarnings returns whether no more warnings are reported.
func (r *Report) FullOfWarnings() bool { return r.warnings >= maxFaults }

// Failures is how many faults were found, without the warnings.
func (r *Report) Failures() int { return r.failures }

// Sorted returns the faults and the warnings in the order of files (as they were read), lines and columns, each once: a fault in [defaults] is met
// again in every job.
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
