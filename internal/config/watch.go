package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Files are the files that a configuration was looked for in, also those that were not there, and the patterns: to notice when something has
// changed since. The zero value is for one [Load].
type Files struct {
	watched []watched
}

// watched is a file by its name, or a pattern by the names that match it, which need not be looked for in a folder that changes for other reasons.
type watched struct {
	name    string
	pattern bool
	read    string // its stamp just before it was read
}

// add is called before a file is read, or a pattern looked for, so that no later change escapes.
func (f *Files) add(by *mountProbe, name string, pattern bool) {
	if slices.ContainsFunc(f.watched, func(w watched) bool { return w.name == name && w.pattern == pattern }) {
		return
	}
	w := watched{name: name, pattern: pattern, read: name + " -"} // as if it were not there, if its mount does not answer
	if stamp, err := probeBlocking(by, name, w.stamp); err == nil {
		w.read = stamp
	}
	f.watched = append(f.watched, w)
}

// AsRead is the [Files.Stamp] of the files as they were read.
func (f *Files) AsRead() string {
	var read []string
	for _, w := range f.watched {
		read = append(read, w.read)
	}
	return strings.Join(read, "\n")
}

// Stamp is a text that is another one than [Files.AsRead] when a file was written, replaced (itself, or what a symbolic link on the way to it leads to),
// added or removed since, or given another mode. It asks the system for each file and folder, and opens none.
//
// All files together get five seconds, and each file one. A file without an answer in that time counts as unchanged, and the error is the error of the first such file.
func (f *Files) Stamp() (stamp string, err error) {
	var now []string
	by := &mountProbe{perPath: time.Second, inAll: 5 * time.Second}
	for _, w := range f.watched {
		stamp, failed := probeBlocking(by, w.name, w.stamp)
		if failed != nil {
			stamp, err = w.read, cmp.Or(err, failed)
		}
		now = append(now, stamp)
	}
	return strings.Join(now, "\n"), err
}

// stamp has no error of its own: a file that is not there is one state of it.
func (w watched) stamp() (string, error) {
	if w.pattern {
		names, _ := matching(w.name) // a faulty pattern is told elsewhere
		return fmt.Sprintf("%s %q", w.name, names), nil
	}
	info, err := os.Stat(w.name)
	switch {
	case err != nil:
		return w.name + " -", nil
	case info.IsDir(): // only the matching files count
		return realPath(w.name), nil
	}
	return fmt.Sprint(realPath(w.name), " ", info.Mode(), " ", info.Size(), " ", info.ModTime().UnixNano()), nil
}

// realPath is the same for all names of a file.
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

// matching is the files that match a pattern, sorted. As in a shell, hidden ones have to be asked for (an editor's lock file is no configuration).
func matching(pattern string) ([]string, error) {
	names, err := filepath.Glob(pattern)
	hidden := strings.HasPrefix(filepath.Base(pattern), ".")
	names = slices.DeleteFunc(names, func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && info.IsDir() || !hidden && strings.HasPrefix(filepath.Base(name), ".")
	})
	slices.Sort(names)
	return names, err //nolint:wrapcheck // the caller words it
}

// literally keeps a folder's name from being taken for a pattern.
func literally(folder string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(folder)
}
