package config

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/safefile"
)

// A mountProbe asks file systems about paths, with a time limit for each path and one for all. Once a mount has not answered, its other paths fail at once.
type mountProbe struct {
	perPath, inAll time.Duration     // time limits
	since          time.Time         // when the first path was probed; zero before
	silent         map[string]string // the mounts that did not answer, and the path that each was asked about; also paths of which the mount is not known
}

// silentMount is the error of a path whose mount does not answer. It wraps [safefile.ErrUnanswered].
type silentMount struct {
	at    string // a path on that mount, free of symbolic links; "" if the mount is not known
	asked string // the earlier path that the mount did not answer for; "" for none
}

// Error names the mount.
func (s *silentMount) Error() string {
	text := safefile.ErrUnanswered.Error()
	if s.at != "" {
		text += proc.OnMount(s.at)
	}
	if s.asked != "" {
		text += ": it did not answer for " + s.asked
	}
	return text
}

// Unwrap returns [safefile.ErrUnanswered].
func (*silentMount) Unwrap() error { return safefile.ErrUnanswered }

// isUnchecked reports whether an error of [mountProbe.probePath] says that nothing is known of the path: its mount did not answer, or the time was used up.
func isUnchecked(err error) bool {
	return errors.Is(err, safefile.ErrUnanswered) || errors.Is(err, context.DeadlineExceeded)
}

// probePath calls ask with a context that ends at the time limit; ask must return then, as the functions of safefile do. The error wraps [safefile.ErrUnanswered] if
// the mount does not answer, and only [context.DeadlineExceeded] if the time for all paths was used up before that is known.
func (p *mountProbe) probePath(path string, ask func(context.Context) error) error {
	if p.since.IsZero() {
		p.since = time.Now()
	}
	if at, asked := p.findSilent(path); asked != "" {
		return &fs.PathError{Op: "read", Path: path, Err: &silentMount{at, asked}}
	}
	end, last := time.Now().Add(p.perPath), p.since.Add(p.inAll)
	short := last.Before(end)
	if short {
		end = last
	}
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	err := ask(ctx)
	switch {
	case !errors.Is(err, safefile.ErrUnanswered):
		return err
	case short && ctx.Err() != nil: // a mount that is only slow may have answered within perPath
		return &fs.PathError{Op: "read", Path: path, Err: context.DeadlineExceeded}
	}
	at, _ := p.followLinks(path)
	p.markSilent(at, path)
	return &fs.PathError{Op: "read", Path: path, Err: &silentMount{at: at}}
}

// findSilent returns a path on the silent mount that a path leads to, and the path that this mount was asked about, which is "" if no silent mount is met.
func (p *mountProbe) findSilent(path string) (at, asked string) {
	if len(p.silent) == 0 {
		return "", ""
	}
	if asked = p.silent[path]; asked != "" {
		return "", asked
	}
	at, silent := p.followLinks(path)
	if !silent {
		return "", ""
	}
	if p.silent[mountOf(at)] == "" {
		p.markSilent(at, path)
	}
	return at, p.silent[mountOf(at)]
}

// markSilent notes that the mount of at did not answer for a path. If at is "", only the path itself is noted.
func (p *mountProbe) markSilent(at, path string) {
	if p.silent == nil {
		p.silent = map[string]string{}
	}
	if at != "" {
		at = mountOf(at)
	}
	p.silent[cmp.Or(at, path)] = path
}

// followTime limits the time for the links of a path.
const followTime = time.Second

// followLinks follows the symbolic links of a path, which may lead from a mount that answers to one that does not. It asks each component, and none on a mount
// that is known to be silent. It returns the place, free of symbolic links, where it stopped, and whether the mount of the place is silent. If everything answers,
// the place is the end of the path. If the end cannot be found, for example because the path is a pattern, the place is "".
func (p *mountProbe) followLinks(path string) (at string, silent bool) {
	const mostLinks = 40 // as Linux has it
	ctx, cancel := context.WithTimeout(context.Background(), followTime)
	defer cancel()
	at = "/"
	rest := strings.Split(proc.AbsolutePath(path), "/")
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0]) // of a real folder, ".." is its parent
		rest = rest[1:]
		if p.silent[mountOf(next)] != "" {
			return next, true
		}
		// A name of its own, because a hanging request for the whole path does not say which component hangs.
		target, err := safefile.Ask(ctx, "the link "+next, func() (string, error) { return os.Readlink(next) })
		switch {
		case errors.Is(err, safefile.ErrUnanswered):
			return next, true
		case errors.Is(err, syscall.EINVAL): // no link
			at = next
			continue
		case err != nil, links == mostLinks:
			return "", false
		case filepath.IsAbs(target):
			at = "/"
		}
		links++
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, false
}

// mountOf returns a text that all paths of a mount share, without a request to its file system. The path must be free of symbolic links. For a path on no known mount
// it returns the path.
func mountOf(path string) string { return cmp.Or(proc.OnMount(path), path) }

// probeBlocking is [mountProbe.probePath] for a function that takes no context. The function may go on after the time limit: see [safefile.Ask].
func probeBlocking[T any](p *mountProbe, path string, ask func() (T, error)) (found T, err error) {
	err = p.probePath(path, func(ctx context.Context) error {
		found, err = safefile.Ask(ctx, path, ask)
		return err //nolint:wrapcheck // it names the path
	})
	return found, err
}
