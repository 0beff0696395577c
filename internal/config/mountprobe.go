package config

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/safefile"
)

// looks asks file systems about files, within a time. A mount that did not answer for one file is not asked about others.
type looks struct {
	each, all time.Duration     // of one look, and of all together
	since     time.Time         // when the first file was looked at; zero before
	silent    map[string]string // mounts that did not answer, and the file for which they were asked
}

// at looks at a path. ask has to end with its context, as the functions of safefile do. The error of a mount that is silent wraps [safefile.ErrUnanswered]; that of
// a path for which no time is left wraps [context.DeadlineExceeded] alone.
func (l *looks) at(path string, ask func(context.Context) error) error {
	if l.since.IsZero() {
		l.since = time.Now()
	}
	if len(l.silent) > 0 {
		if asked, silent := l.silent[mountOf(path)]; silent {
			return fmt.Errorf("%w%s: it did not for %s", safefile.ErrUnanswered, proc.OnMount(path), asked)
		}
	}
	end := time.Now().Add(l.each)
	if all := l.since.Add(l.all); all.Before(end) {
		end = all
	}
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	err := ask(ctx)
	if errors.Is(err, safefile.ErrUnanswered) {
		if l.silent == nil {
			l.silent = map[string]string{}
		}
		l.silent[mountOf(path)] = path
	}
	return err
}

// mountOf returns the mount that a path is on, as far as that is known without a look at it. Otherwise the path stands for itself.
func mountOf(path string) string {
	if mount := proc.OnMount(path); mount != "" {
		return mount
	}
	return path
}

// look has [looks.at] ask about a path by a function that does not end with a context.
func look[T any](l *looks, path string, ask func() (T, error)) (found T, err error) {
	err = l.at(path, func(ctx context.Context) error {
		found, err = safefile.Ask(ctx, path, ask)
		return err //nolint:wrapcheck // it names the path
	})
	return found, err
}
