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

// Files records the files and patterns that Load looked for, including missing files, so that later changes can be detected. The zero value is ready for one
// [Load].
type Files struct {
	watched []watched
}

// watched is a file or a pattern. The stamp of a pattern contains only the names that match, so other changes in the folder do not matter.
type watched struct {
	name    string
	pattern bool
	read    string // stamp of the file before it was read
}

// addPath records the stamp of a file or a pattern. It is called before the file is read, so that no change after the read is missed.
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

// Stamp returns a text that differs from [Files.AsRead] if a file was changed, replaced, added or removed since then, or if its mode has changed. A file also
// counts as replaced if a symbolic link in its path now leads to another file. Stamp asks the system about each file and folder, but opens no file.
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

// currentStamp returns the present stamp. Its error is always nil: a missing file has a stamp, too.
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

// realPath returns the absolute path of a file without symbolic links.
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
	return names, err //nolint:wrapcheck // the caller words it
}

// escapePattern escapes the name of a folder for use in a pattern.
func escapePattern(folder string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(folder)
}
