package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrOnce means that a configuration can be read only once, since it comes through a pipe or the like.
var ErrOnce = errors.New("it comes from what is no file, and can be read only once")

// Files are the files and folders that a configuration was looked for in, also those that were not there: to notice when one of them has
// changed since. The zero value is for one [Load].
type Files struct {
	names []string
	read  []string // their stamps just before they were read
}

// add is called before a file or folder is read, so that no later change escapes.
func (f *Files) add(name string) {
	if f == nil || slices.Contains(f.names, name) {
		return
	}
	stamp, _ := stampOf(name) // an error is told when it is to be read again
	f.names, f.read = append(f.names, name), append(f.read, stamp)
}

// addPattern adds the folders in which files may come to match a pattern.
func (f *Files) addPattern(full string) {
	if f == nil {
		return
	}
	dir := filepath.Dir(full)
	folders, _ := filepath.Glob(dir) // a faulty pattern is told elsewhere
	for _, folder := range folders {
		f.add(folder)
	}
	for strings.ContainsAny(dir, `*?[`) {
		dir = filepath.Dir(dir)
	}
	f.add(dir) // where more of them may appear
}

// AsRead is the [Files.Stamp] of what was read.
func (f *Files) AsRead() string { return strings.Join(f.read, "\n") }

// Stamp is a text that is another one than [Files.AsRead] when a file was written, replaced (itself, or what a symbolic link on the way to it leads to),
// added or removed since. It asks the system for each file, and reads none. Its error is [ErrOnce] or nil.
func (f *Files) Stamp() (string, error) {
	now := make([]string, len(f.names))
	for i, name := range f.names {
		var err error
		if now[i], err = stampOf(name); err != nil {
			return "", err
		}
	}
	return strings.Join(now, "\n"), nil
}

func stampOf(name string) (string, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return name + " -", nil
	case info.Mode().IsRegular() || info.IsDir():
		return fmt.Sprint(realPath(name), " ", info.Size(), " ", info.ModTime().UnixNano()), nil
	}
	return "", fmt.Errorf("%s: %w", name, ErrOnce)
}
