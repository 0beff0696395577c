package document

import (
	"fmt"
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

// Split parts the warnings from the faults.
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
