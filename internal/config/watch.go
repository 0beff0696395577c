package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// ErrOnce means that a configuration can be read only once, since it comes through a pipe or the like.
var ErrOnce = errors.New("it comes from what is no file, and can be read only once")

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
func (f *Files) add(name string, pattern bool) {
	if f == nil || slices.ContainsFunc(f.watched, func(w watched) bool { return w.name == name && w.pattern == pattern }) {
		return
	}
	w := watched{name: name, pattern: pattern}
	w.read, _ = w.stamp() // an error is told when it is to be read again
	f.watched = append(f.watched, w)
}

// AsRead is the [Files.Stamp] of what was read.
func (f *Files) AsRead() string {
	var read []string
	for _, w := range f.watched {
		read = append(read, w.read)
	}
	return strings.Join(read, "\n")
}

// Stamp is a text that is another one than [Files.AsRead] when a file was written, replaced (itself, or what a symbolic link on the way to it leads to),
// added or removed since. It asks the system for each file and folder, and reads no file. Its error is [ErrOnce] or nil.
func (f *Files) Stamp() (string, error) {
	var now []string
	for _, w := range f.watched {
		stamp, err := w.stamp()
		if err != nil {
			return "", err
		}
		now = append(now, stamp)
	}
	return strings.Join(now, "\n"), nil
}

func (w watched) stamp() (string, error) {
	if w.pattern {
		names, _ := matching(w.name) // a faulty pattern is told elsewhere
		return fmt.Sprintf("%s %q", w.name, names), nil
	}
	info, err := os.Stat(w.name)
	switch {
	case err != nil:
		return w.name + " -", nil
	case info.IsDir(): // of which only what matches counts
		return realPath(w.name), nil
	case info.Mode().IsRegular():
		return fmt.Sprint(realPath(w.name), " ", info.Size(), " ", info.ModTime().UnixNano()), nil
	}
	return "", fmt.Errorf("%s: %w", w.name, ErrOnce)
}
