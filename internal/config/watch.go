package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/safefile"
)

// Files records the files and patterns that Load looked for, including missing files, so that later changes can be detected. The zero value is ready for one
// [Load].
type Files struct {
	watched []watched
}

// watched is a file or a pattern. Its stamp is a text that changes if the file changes. The stamp of a pattern contains only the names of the matching files,
// so other changes in the folder do not matter.
type watched struct {
	name    string
	pattern bool
	read    string // stamp of the file before it was read
}

// addPath records the stamp of a file or a pattern. It must be called before the file is read. Otherwise a change after the read could be missed.
func (f *Files) addPath(by *mountProbe, name string, pattern bool) {
	if slices.ContainsFunc(f.watched, func(w watched) bool { return w.name == name && w.pattern == pattern }) {
		return
	}
	w := watched{name: name, pattern: pattern, read: name + " -"} // stamp of a missing file; replaced below unless the mount does not answer
	if stamp, err := probeBlocking(by, name, w.currentStamp); err == nil {
		w.read = stamp
	}
	f.watched = append(f.watched, w)
}

// AsRead returns the [Files.Stamp] at the time when the files were read.
func (f *Files) AsRead() string {
	var read []string
	for _, w := range f.watched {
		read = append(read, w.read)
	}
	return strings.Join(read, "\n")
}

// Stamp returns a text that differs from [Files.AsRead] if a file was changed, replaced, added or removed after it was read, or if its mode has changed. A file
// also counts as replaced if a symbolic link in its path now leads to another file. Stamp opens no file of the configuration.
//
// Stamp waits at most one second for each file and five seconds for all files. A file without an answer in that time counts as unchanged, and Stamp returns
// the error of the first such file.
func (f *Files) Stamp() (stamp string, err error) {
	var now []string
	by := &mountProbe{perPath: time.Second, inAll: 5 * time.Second}
	for _, w := range f.watched {
		stamp, failed := probeBlocking(by, w.name, w.currentStamp)
		if failed != nil {
			stamp, err = w.read, cmp.Or(err, failed)
		}
		now = append(now, stamp)
	}
	return strings.Join(now, "\n"), err
}

// currentStamp never returns an error, because a missing file has a stamp, too.
func (w watched) currentStamp() (string, error) {
	if w.pattern {
		names, _ := matchFiles(w.name) // Load reports a faulty pattern
		return fmt.Sprintf("%s %q", w.name, names), nil
	}
	info, err := os.Stat(w.name)
	switch {
	case err != nil:
		return w.name + " -", nil
	case info.IsDir(): // for a folder, only its matching files count
		return realPath(w.name), nil
	}
	return fmt.Sprint(realPath(w.name), " ", info.Mode(), " ", info.Size(), " ", info.ModTime().UnixNano()), nil
}

func realPath(name string) string {
	absolute, err := filepath.Abs(name)
	if err != nil {
		return name
	}
	if path, err := filepath.EvalSymlinks(absolute); err == nil {
		return path
	}
	return absolute
}

// matchFiles returns the files that match a pattern, sorted. As in a shell, a pattern matches hidden files only if it begins with a dot. So it does not match
// the lock files of editors.
func matchFiles(pattern string) ([]string, error) {
	names, err := filepath.Glob(pattern)
	hidden := strings.HasPrefix(filepath.Base(pattern), ".")
	names = slices.DeleteFunc(names, func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && info.IsDir() || !hidden && strings.HasPrefix(filepath.Base(name), ".")
	})
	slices.Sort(names)
	return names, err //nolint:wrapcheck // the caller adds what failed
}

func escapePattern(folder string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(folder)
}

// mountProbe accesses paths with one time limit per path and one for all paths together. After a mount has not answered in time, later requests for paths on
// the same mount fail without a wait.
type mountProbe struct {
	perPath, inAll time.Duration     // time limit of one path, and of all paths
	since          time.Time         // start of the first probe
	silent         map[string]string // maps a mount to the first path for which it did not answer; the key is the path itself if the mount is unknown
}

// silentMount is the error for a path whose mount does not answer. It wraps [safefile.ErrUnanswered].
type silentMount struct {
	at    string // a path on that mount, without symbolic links; "" if the mount is unknown
	asked string // the earlier path for which the mount did not answer, or ""
}

// Error names the mount, if it is known.
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

// isUnchecked reports whether [mountProbe.probePath] got no answer about the path, because the mount did not answer or the time was used up.
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

const followTime = time.Second

// followLinks follows the symbolic links of a path, which may lead to another mount. It stops at a mount that does not answer now or did not answer before.
// Then silent is true, and at is the path at which it stopped. Otherwise at is the target of the path, or "" if the target can't be found, for example because
// the path is a pattern. at contains no symbolic links.
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

// mountOf returns a text that identifies the mount of a path, or the path itself if the mount is unknown. The path must not contain symbolic links. mountOf
// does not access the file system of the path, which may hang.
func mountOf(path string) string { return cmp.Or(proc.OnMount(path), path) }

// probeBlocking calls [mountProbe.probePath] with a function that takes no context. After the time limit, the function may continue in the background: see
// [safefile.Ask].
func probeBlocking[T any](p *mountProbe, path string, ask func() (T, error)) (found T, err error) {
	err = p.probePath(path, func(ctx context.Context) error {
		found, err = safefile.Ask(ctx, path, ask)
		return err //nolint:wrapcheck // the error names the path
	})
	return found, err
}
