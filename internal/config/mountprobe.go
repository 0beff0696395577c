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

// mountProbe asks file systems about paths, within a time limit per path and one for all paths. After a mount has not answered, requests about its
// other paths fail at once.
type mountProbe struct {
	perPath, inAll time.Duration     // time limits
	since          time.Time         // start of the first probe
	silent         map[string]string // the path that got no answer, by mount; by path if the mount is unknown
}

// silentMount is the error of a path whose mount does not answer. It wraps [safefile.ErrUnanswered].
type silentMount struct {
	at    string // a path on that mount, without symbolic links; "" if the mount is unknown
	asked string // the earlier path for which the mount did not answer, or ""
}

// Error returns a text that names the mount.
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

// isUnchecked reports whether an error of [mountProbe.probePath] leaves the state of the path unknown: the mount did not answer, or the time was used
// up.
func isUnchecked(err error) bool {
	return errors.Is(err, safefile.ErrUnanswered) || errors.Is(err, context.DeadlineExceeded)
}

// probePath calls ask with a context that ends at the time limit. ask must return then, like the functions of safefile. The error wraps
// [safefile.ErrUnanswered] if the mount does not answer, and [context.DeadlineExceeded] if the time for all paths was used up before.
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
	case short && ctx.Err() != nil: // within perPath, a slow mount might have answered
		return &fs.PathError{Op: "read", Path: path, Err: context.DeadlineExceeded}
	}
	at, _ := p.followLinks(path)
	p.markSilent(at, path)
	return &fs.PathError{Op: "read", Path: path, Err: &silentMount{at: at}}
}

// findSilent reports that a path leads to a mount that is known to be silent. at is a path on that mount, and asked the path for which it did not
// answer; asked is "" if there is none.
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

// markSilent records that the mount of at did not answer for a path. If at is "", it records only the path.
func (p *mountProbe) markSilent(at, path string) {
	if p.silent == nil {
		p.silent = map[string]string{}
	}
	if at != "" {
		at = mountOf(at)
	}
	p.silent[cmp.Or(at, path)] = path
}

// followTime bounds the time for following the links of a path.
const followTime = time.Second

// followLinks follows the symbolic links of a path, which may lead to another mount. It asks the file system about each component, but never a mount
// that is known to be silent. It returns the place at which it stopped, without symbolic links, and whether the mount of that place is silent. If
// every mount answers, the place is the target of the path. The place is "" if the target can't be found, for example because the path is a pattern.
func (p *mountProbe) followLinks(path string) (at string, silent bool) {
	const mostLinks = 40 // as in Linux
	ctx, cancel := context.WithTimeout(context.Background(), followTime)
	defer cancel()
	at = "/"
	rest := strings.Split(proc.AbsolutePath(path), "/")
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0]) // at is free of links, so ".." is its parent
		rest = rest[1:]
		if p.silent[mountOf(next)] != "" {
			return next, true
		}
		// Each component is asked under its own name, because a hanging request for the whole path would not show which component hangs.
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

// mountOf returns a text that identifies the mount of a path, without asking its file system. The path must be free of symbolic links. If no mount is
// known, it returns the path.
func mountOf(path string) string { return cmp.Or(proc.OnMount(path), path) }

// probeBlocking calls [mountProbe.probePath] with a function that takes no context. The function may still run after the time limit: see
// [safefile.Ask].
func probeBlocking[T any](p *mountProbe, path string, ask func() (T, error)) (found T, err error) {
	err = p.probePath(path, func(ctx context.Context) error {
		found, err = safefile.Ask(ctx, path, ask)
		return err //nolint:wrapcheck // it names the path
	})
	return found, err
}
