// Package multierr joins errors of which there may be any number, because somebody else decides how many: another program's entries in
// Redis, a cluster's jobs. The result names the first errors and counts the others, so that its text and the work with it are bounded.
// Faults of a configuration are another matter: a user gets all of them at once.
package multierr

import (
	"fmt"
	"slices"
	"strings"
)

// Kept is how many errors a [List] keeps; it counts the others.
const Kept = 10

// List collects errors. Its zero value is an empty list.
type List struct {
	kept []error
	more int
}

// Add adds errors, less those that are nil. The errors of another list are added one by one.
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

// Err is nil for an empty list, and the error itself if there is only one. Else errors.Is and errors.As look at the errors that were kept.
func (l *List) Err() error {
	switch {
	case len(l.kept) == 0:
		return nil
	case len(l.kept) == 1:
		return l.kept[0]
	}
	return &joined{slices.Clone(l.kept), l.more}
}

// Join is the Err of a list of errs.
func Join(errs ...error) error {
	var l List
	l.Add(errs...)
	return l.Err()
}

// joined is a list with two errors at least. It does not change.
type joined struct {
	kept []error
	more int
}

// Error has a line for each error that was kept.
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
