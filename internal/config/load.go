package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/safefile"
)

// reader reads one configuration and gathers its faults.
type reader struct {
	options Options
	faults  Faults
	sources []*source
	broken  []*source        // that are no TOML
	order   map[string]int   // of the files' names, as they were reached
	known   map[string]bool  // files that were read, by their real paths
	set     map[string]value // settings and jobs by their paths: the place of each
	meant   map[string]bool  // keys that were suggested in place of unknown ones
	taken   map[string]bool  // Config.EnvTaken
	bounds  bounds
	count   struct{ faults, warnings int } // those that are not kept among them
	judged  map[judgement]finding          // the judgements of files that the configuration names
	judging time.Time                      // since when files are judged; zero before
}

func newReader(o Options) *reader {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &reader{
		options: o,
		order:   make(map[string]int),
		known:   make(map[string]bool),
		set:     make(map[string]value),
		meant:   make(map[string]bool),
		taken:   make(map[string]bool),
		bounds:  newBounds(),
		judged:  make(map[judgement]finding),
	}
}

// load reads the file or folder that the user named, and all that is included from there.
func (r *reader) load(path string) {
	nowhere := newSource(path, "")
	r.order[path] = 0
	r.options.Files.add(path, false)
	at := value{src: nowhere, at: &place{}}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		r.fault(at, "cannot be read: %v", bare(err))
	case !info.IsDir():
		r.file(path, at)
	default:
		files := r.matches(path, "*.toml", at)
		if len(files) == 0 {
			r.fault(at, "no *.toml file in this folder")
		}
		for _, file := range files {
			r.file(file, at)
		}
	}
}

// file reads one file, unless it was read before, and those that it includes. A fault in reading it at all belongs to
// the place that named it.
func (r *reader) file(name string, from value) {
	path := realPath(name)
	if r.known[path] {
		return
	}
	r.known[path] = true
	r.options.Files.add(name, false)
	s, err := r.readSource(name)
	var untrusted *safefile.UntrustedError
	switch {
	case errors.As(err, &untrusted):
		r.fault(from, "%v", untrusted)
		return
	case err != nil:
		r.fault(from, "%s cannot be read: %v", name, err)
		return
	}
	r.source(s)
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

func (r *reader) source(s *source) {
	if _, known := r.order[s.name]; !known {
		r.order[s.name] = len(r.order)
	}
	for _, f := range s.parse(&r.bounds) {
		r.note(f)
	}
	if s.tree == nil {
		r.broken = append(r.broken, s)
		return
	}
	r.sources = append(r.sources, s)
	if include, found := s.root(r.taken).get("include"); found {
		r.include(include)
	}
}

// root is the file's top level.
func (s *source) root(takes map[string]bool) value {
	return value{src: s, at: s.places, raw: s.tree, takes: takes}
}

// include reads what a file includes: names and patterns, relative to the file's folder.
func (r *reader) include(v value) {
	const want = `a list of files and patterns, such as ["jobs.d/*.toml"]`
	if list, isList := v.raw.([]any); isList && len(list) == 0 {
		return
	}
	_, _ = list(r, v, want, func(item value) (string, bool) {
		e, ok := r.text(item, want)
		switch {
		case !ok || e.open:
		case e.text == "":
			r.fault(item, "%q must not name an empty path", item.name)
		case !strings.ContainsAny(e.text, `*?[\`):
			r.file(item.relative(e.text), item)
		default:
			folder := ""
			if !filepath.IsAbs(e.text) {
				folder = filepath.Dir(item.src.name)
			}
			for _, name := range r.matches(folder, e.text, item) {
				r.file(name, item)
			}
		}
		return e.text, ok
	})
}

// matches returns the files that match a pattern in a folder, sorted.
func (r *reader) matches(folder, pattern string, from value) []string {
	full := pattern
	if folder != "" {
		full = filepath.Join(literally(folder), pattern)
	}
	r.options.Files.add(full, true)
	names, err := matching(full)
	if err != nil {
		r.fault(from, "%q is not a pattern; a bracket is not closed, or write \\[ for a literal [", pattern)
	}
	folders, _ := filepath.Glob(filepath.Dir(full))
	for _, folder := range folders {
		r.folder(folder, from)
		if _, err := os.ReadDir(folder); err != nil && !errors.Is(err, fs.ErrNotExist) { // else it would seem to be empty
			r.fault(from, "%s cannot be read: %v", folder, bare(err))
		}
	}
	return names
}

// folder refuses a folder in which others may add files.
func (r *reader) folder(name string, from value) {
	var untrusted *safefile.UntrustedError
	if err := safefile.InspectFolder(name, r.options.Trust); errors.As(err, &untrusted) {
		r.fault(from, "%v", untrusted)
	}
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
