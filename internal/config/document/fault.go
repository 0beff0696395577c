package document

import (
	"fmt"
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
