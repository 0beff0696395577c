package multierr_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/multierr"
)

func numbered(from, to int) []error {
	var errs []error
	for i := from; i <= to; i++ {
		errs = append(errs, fmt.Errorf("fault %d", i))
	}
	return errs
}

func TestListNamesTheFirstAndCountsTheRest(t *testing.T) {
	for n, want := range map[int]string{
		2:     "fault 1\nfault 2",
		10:    "fault 1\nfault 2\nfault 3\nfault 4\nfault 5\nfault 6\nfault 7\nfault 8\nfault 9\nfault 10",
		16000: "fault 1\nfault 2\nfault 3\nfault 4\nfault 5\nfault 6\nfault 7\nfault 8\nfault 9\nfault 10\n... and 15990 more",
	} {
		if got := multierr.Join(numbered(1, n)...).Error(); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

func TestFewErrorsStayAsTheyAre(t *testing.T) {
	if err := multierr.Join(nil, nil); err != nil {
		t.Errorf("no errors: %v", err)
	}
	if err := multierr.Join(nil, fs.ErrExist, nil); err != fs.ErrExist { //nolint:errorlint // it is the same
		t.Errorf("one error: %v", err)
	}
	err := fmt.Errorf("read: %w", multierr.Join(fs.ErrExist, &fs.PathError{Op: "open", Path: "x", Err: fs.ErrClosed}))
	var path *fs.PathError
	if !errors.Is(err, fs.ErrExist) || !errors.As(err, &path) || errors.Is(err, fs.ErrInvalid) {
		t.Errorf("two errors: %v", err)
	}
}

// A list that is added to another does not hide how many there are, and an earlier result does not change.
func TestListsAddUp(t *testing.T) {
	var list multierr.List
	list.Add(numbered(1, 4)...)
	first := list.Err()
	for range 5 {
		list.Add(multierr.Join(numbered(5, 16)...))
	}
	if got := list.Err().Error(); strings.Count(got, "more") != 1 || !strings.HasSuffix(got, "fault 10\n... and 54 more") {
		t.Errorf("together: %q", got)
	}
	if got := first.Error(); got != "fault 1\nfault 2\nfault 3\nfault 4" {
		t.Errorf("the earlier result: %q", got)
	}
}
