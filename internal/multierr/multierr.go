// Package multierr joins errors whose number is not limited by this program, for example one error per entry that another program wrote to Redis, or per job
// of a cluster. The result contains the first errors and the number of the others, so its length is limited. Package config does not use it, because the user
// of a faulty configuration gets all errors at once.
package multierr

import (
	"fmt"
	"slices"
	"strings"
)

// Kept is the number of errors that a [List] keeps. Further errors are only counted.
const Kept = 10

// A List collects errors. The zero value is an empty list.
type List struct {
	kept []error
	more int
}

// Add adds errors. It ignores nil. If an error comes from another list, Add adds that list's errors one by one.
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

// Err returns nil for an empty list, and the error itself if there is only one. Otherwise it returns an error that wraps the kept errors.
func (l *List) Err() error {
	switch {
	case len(l.kept) == 0:
		return nil
	case len(l.kept) == 1:
		return l.kept[0]
	}
	return &joined{slices.Clone(l.kept), l.more}
}

// Join adds errs to a new list and returns its [List.Err].
func Join(errs ...error) error {
	var l List
	l.Add(errs...)
	return l.Err()
}

// A joined is the error of a list with at least two errors. It is immutable.
type joined struct {
	kept []error
	more int
}

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

func (j *joined) Unwrap() []error { return slices.Clone(j.kept) }
