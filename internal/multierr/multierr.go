// Package multierr joins errors whose number others decide, such as one for each of another program's entries in Redis, or for each job of a cluster.
// The result has the first errors and the number of the others, so that its text and the work with it are bounded. A faulty configuration is
// different: its user gets all errors at once.
package multierr

import (
	"fmt"
	"slices"
	"strings"
)

// Kept is the number of errors that a [List] keeps. It only counts the others.
const Kept = 10

// A List collects errors. Its zero value is an empty list.
type List struct {
	kept []error
	more int
}

// Add adds errors that are not nil. The errors of another list are added one by one.
func (l *List) Add(errs ...error) {
	for _, err := range errs {
		switch several := err.(type) { //nolint:errorlint // a list that was wrapped has a text of its own
		case nil:
		case *joined:
			l.Add(several.kept...)
			l.more += several.more
		default:
			if len(l.kept) < Kept {
				l.kept = append(l.kept, err)
			} else {
				l.more++
			}
		}
	}
}

// Err returns nil for an empty list, the error itself if there is only one, and otherwise an error that wraps the errors that were kept.
func (l *List) Err() error {
	switch {
	case len(l.kept) == 0:
		return nil
	case len(l.kept) == 1:
		return l.kept[0]
	}
	return &joined{slices.Clone(l.kept), l.more}
}

// Join returns the [List.Err] of a list of errs.
func Join(errs ...error) error {
	var l List
	l.Add(errs...)
	return l.Err()
}

// A joined is a list with at least two errors. It does not change.
type joined struct {
	kept []error
	more int
}

// Error returns a line for each error that was kept.
func (j *joined) Error() string {
	var text strings.Builder
	for i, err := range j.kept {
		if i > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(err.Error())
	}
	if j.more > 0 {
		fmt.Fprintf(&text, "\n... and %d more", j.more)
	}
	return text.String()
}

// Unwrap returns the errors that were kept.
func (j *joined) Unwrap() []error { return slices.Clone(j.kept) }
