package config

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/safefile"
)

// A mountProbe asks file systems about paths, with a time limit for each path and one for all. Once a mount has not answered, its other paths fail at once.
type mountProbe struct {
	perPath, inAll time.Duration     // time limits
	since          time.Time         // when the first path was probed; zero before
	silent         map[string]string // the mounts that did not answer, and the path that each was asked about
}

// probePath calls ask with a context that ends at the time limit; ask must return then, as the functions of safefile do. The error wraps [safefile.ErrUnanswered] if
// the mount does not answer, and only [context.DeadlineExceeded] if the time for all paths was used up before.
func (p *mountProbe) probePath(path string, ask func(context.Context) error) error {
	if p.since.IsZero() {
		p.since = time.Now()
	}
	if len(p.silent) > 0 {
		if asked, silent := p.silent[mountOf(path)]; silent {
			return fmt.Errorf("%w%s: it did not answer for %s", safefile.ErrUnanswered, proc.OnMount(path), asked)
		}
	}
	end := time.Now().Add(p.perPath)
	if all := p.since.Add(p.inAll); all.Before(end) {
		end = all
	}
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	err := ask(ctx)
	if errors.Is(err, safefile.ErrUnanswered) {
		if p.silent == nil {
			p.silent = map[string]string{}
		}
		p.silent[mountOf(path)] = path
	}
	return err
}

// mountOf returns a text that all paths of a mount share, without a request to its file system. For a path on no known mount it returns the path.
func mountOf(path string) string {
	if mount := proc.OnMount(path); mount != "" {
		return mount
	}
	return path
}

// probeBlocking is [mountProbe.probePath] for a function that takes no context. The function may go on after the time limit: see [safefile.Ask].
func probeBlocking[T any](p *mountProbe, path string, ask func() (T, error)) (found T, err error) {
	err = p.probePath(path, func(ctx context.Context) error {
		found, err = safefile.Ask(ctx, path, ask)
		return err //nolint:wrapcheck // it names the path
	})
	return found, err
}
