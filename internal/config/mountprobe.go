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

// mountProbe asks file systems about paths. It has one time limit per path and one for all paths. If a mount did not answer once, requests for other paths on
// it fail at once.
type mountProbe struct {
	perPath, inAll time.Duration     // time limit of one path, and of all paths
	since          time.Time         // start of the first probe
	silent         map[string]string // by mount, the first path for which the mount did not answer; by path if the mount is unknown
}

// silentMount is the error for a path whose mount does not answer. It wraps [safefile.ErrUnanswered].
type silentMount struct {
	at    string // a path on that mount, without symbolic links; "" if the mount is unknown
	asked string // the earlier path for which the mount did not answer, or ""
}

// Error returns a text that contains the mount, if it is known.
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

// isUnchecked reports whether [mountProbe.probePath] failed without an answer about the path, because the mount did not answer or the time was used up.
func isUnchecked(err error) bool {
	return errors.Is(err, safefile.ErrUnanswered) || errors.Is(err, context.DeadlineExceeded)
}

// probePath calls ask with a context that ends at the time limit. ask must then return, like the functions of safefile. The error wraps
// [safefile.ErrUnanswered] if the mount does not answer, and [context.DeadlineExceeded] if the time for all paths is used up.
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
	case short && ctx.Err() != nil: // a slow mount might still have answered within perPath
		return &fs.PathError{Op: "read", Path: path, Err: context.DeadlineExceeded}
	}
	at, _ := p.followLinks(path)
	p.markSilent(at, path)
	return &fs.PathError{Op: "read", Path: path, Err: &silentMount{at: at}}
}

// findSilent reports whether a path leads to a mount that did not answer before. at is a path on that mount, or "" if the mount is unknown. asked is the
// earlier path for which the mount did not answer. If there is no such mount, asked is "".
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

// markSilent records that a path got no answer from the mount of at. If at is "", the mount is unknown.
func (p *mountProbe) markSilent(at, path string) {
	if p.silent == nil {
		p.silent = map[string]string{}
	}
	if at != "" {
		at = mountOf(at)
	}
	p.silent[cmp.Or(at, path)] = path
}

// followTime bounds the time for following the symbolic links of a path.
const followTime = time.Second

// followLinks follows the symbolic links of a path, which may lead to another mount. It asks the file system about each component, but skips mounts that did
// not answer before. If a mount is silent, at is the path at which followLinks stopped. Otherwise at is the target of the path. at contains no symbolic
// links. at is "" if the target can't be found, for example because the path is a pattern.
func (p *mountProbe) followLinks(path string) (at string, silent bool) {
	const mostLinks = 40 // the same limit as in Linux
	ctx, cancel := context.WithTimeout(context.Background(), followTime)
	defer cancel()
	at = "/"
	rest := strings.Split(proc.AbsolutePath(path), "/")
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0]) // at contains no symbolic links, so ".." is its parent
		rest = rest[1:]
		if p.silent[mountOf(next)] != "" {
			return next, true
		}
		// Each component gets its own request. A request for the whole path would not show which component hangs.
		target, err := safefile.Ask(ctx, "the link "+next, func() (string, error) { return os.Readlink(next) })
		switch {
		case errors.Is(err, safefile.ErrUnanswered):
			return next, true
		case errors.Is(err, syscall.EINVAL): // not a link
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

// mountOf returns a text that identifies the mount of a path. It does not ask the file system of the path. The path must not contain symbolic links. If the
// mount is unknown, mountOf returns the path.
func mountOf(path string) string { return cmp.Or(proc.OnMount(path), path) }

// probeBlocking calls [mountProbe.probePath] with a function that takes no context. After the time limit, the function may continue in the background: see
// [safefile.Ask].
func probeBlocking[T any](p *mountProbe, path string, ask func() (T, error)) (found T, err error) {
	err = p.probePath(path, func(ctx context.Context) error {
		found, err = safefile.Ask(ctx, path, ask)
		return err //nolint:wrapcheck // it names the path
	})
	return found, err
}
