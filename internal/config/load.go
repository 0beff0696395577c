package config

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/internal/safefile"
)

// Options say how Load reads.
type Options struct {
	// Env looks a variable up; nil is the process's environment.
	Env func(name string) (value string, set bool)
	// KeepUnset takes a variable that is not set as given: ${NAME} stays as it is written, and what it stands in is
	// not checked. Such a configuration is good for checking only; a job's Spec may be nil in it.
	KeepUnset bool
	// Files, if set, gets the names of all files and folders that were looked at, also if there are faults.
	Files *Files
	// Trust says whose files are read: those of the configuration, and of those that it names. Where it judges, secrets that others
	// may read are a warning.
	Trust safefile.Trust
	// Rights looks up with whose rights a job's files are opened; nil, as its result, is this process's own.
	Rights func(user, group string) (*safefile.Identity, error)
	// Machine has users, folders, files and programs of jobs that this machine lacks reported as warnings.
	Machine bool
	// SystemZones is the folder with the machine's own time zones; with Machine, newer ones than those in use are a warning. Defaults to /usr/share/zoneinfo.
	SystemZones string
	// Now is the instant by which a job has expired; nil is time.Now.
	Now func() time.Time
}

// Load reads the configuration at path, which is a file or a folder of *.toml files. If anything is wrong with it the
// error is [Faults]: all faults, and the warnings among them.
func Load(path string, o Options) (*Config, error) {
	l := newLoader(o)
	l.load(path)
	files := newFileChecks(l.Report, l.options)
	c := assemble(l.Reader, l.roots, files, l.options)
	found := l.Sorted(l.order)
	faults, warnings := found.Split()
	if len(faults) > 0 {
		return nil, found
	}
	c.Warnings, c.Trust, c.EnvTaken, c.Unchecked = warnings, o.Trust, l.taken, files.skipped
	return c, nil
}

// loader reads the files of one configuration.
type loader struct {
	*schema.Reader
	options Options
	bounds  *document.Bounds
	files   []*document.File
	probe   *mountProbe
	roots   []document.Value // of the files that are TOML
	order   map[string]int   // of the files' names, as they were reached
	known   map[string]bool  // files that were read, by their real paths
	taken   map[string]bool  // Config.EnvTaken
}

func newLoader(o Options) *loader {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	taken := make(map[string]bool)
	variables := schema.Variables{Lookup: o.Env, KeepUnset: o.KeepUnset, Taken: taken}
	return &loader{
		Reader:  schema.NewReader(&document.Report{}, variables, schema.Names{Home: home, Synonyms: synonyms}),
		options: o,
		bounds:  document.NewBounds(),
		probe:   &mountProbe{perPath: 5 * time.Second, inAll: 30 * time.Second},
		order:   make(map[string]int),
		known:   make(map[string]bool),
		taken:   taken,
	}
}

// load reads the file or folder that the user named, and all that is included from there.
func (l *loader) load(path string) {
	l.order[path] = 0
	l.watch(path, false)
	at := document.Absent(path)
	info, err := probeBlocking(l.probe, path, func() (fs.FileInfo, error) { return os.Stat(path) })
	switch {
	case err != nil:
		l.Fault(at, "cannot be read: %v", bare(err))
	case !info.IsDir():
		l.file(path, at)
	default:
		files := l.matches(path, "*.toml", at)
		if len(files) == 0 {
			l.Fault(at, "no *.toml file in this folder")
		}
		for _, file := range files {
			l.file(file, at)
		}
	}
}

// file reads one file, unless it was read before, and those that it includes. A fault in reading it at all belongs to
// the place that named it.
func (l *loader) file(name string, from document.Value) {
	l.watch(name, false)
	path, err := probeBlocking(l.probe, name, func() (string, error) { return realPath(name), nil })
	if err != nil {
		l.Fault(from, "%s cannot be read: %v", name, bare(err))
		return
	}
	if l.known[path] {
		return
	}
	l.known[path] = true
	var text []byte
	err = l.probe.probePath(name, func(ctx context.Context) (err error) {
		text, err = safefile.Read(ctx, name, safefile.Policy{MaxBytes: document.MaxFileBytes, Trust: l.options.Trust})
		return err
	})
	if err == nil {
		err = l.bounds.Take(len(text))
	}
	var untrusted *safefile.UntrustedError
	switch {
	case errors.As(err, &untrusted):
		l.Fault(from, "%v", untrusted)
	case err != nil:
		l.Fault(from, "%s cannot be read: %v", name, bare(err))
	default:
		l.parse(document.New(name, string(text)))
	}
}

// watch notes a file, or a pattern, before it is looked at.
func (l *loader) watch(name string, pattern bool) {
	if l.options.Files != nil {
		l.options.Files.add(l.probe, name, pattern)
	}
}

// parse reads the text of a file, and the files that it includes.
func (l *loader) parse(f *document.File) {
	if _, known := l.order[f.Name()]; !known {
		l.order[f.Name()] = len(l.order)
	}
	l.files = append(l.files, f)
	for _, fault := range f.Parse(l.bounds) {
		l.Add(fault)
	}
	root, ok := f.Root()
	if !ok {
		return
	}
	l.roots = append(l.roots, root)
	if include, found := root.Get("include"); found {
		l.include(include)
	}
}

// include reads what a file includes: names and patterns, relative to the file's folder.
func (l *loader) include(v document.Value) {
	const want = `a list of files and patterns, such as ["jobs.d/*.toml"]`
	if list, isList := v.Raw.([]any); isList && len(list) == 0 {
		return
	}
	_, _ = schema.List(l.Reader, v, want, func(item document.Value) (string, bool) {
		e, ok := l.Text(item, want)
		switch {
		case !ok || e.Open:
		case e.Text == "":
			l.Fault(item, "%q must not name an empty path", item.Name)
		case !strings.ContainsAny(e.Text, `*?[\`):
			l.file(item.Relative(e.Text), item)
		default:
			folder := ""
			if !filepath.IsAbs(e.Text) {
				folder = filepath.Dir(item.File())
			}
			for _, name := range l.matches(folder, e.Text, item) {
				l.file(name, item)
			}
		}
		return e.Text, ok
	})
}

// matches returns the files that match a pattern in a folder, sorted.
func (l *loader) matches(folder, pattern string, from document.Value) []string {
	full := pattern
	if folder != "" {
		full = filepath.Join(literally(folder), pattern)
	}
	l.watch(full, true)
	names, err := probeBlocking(l.probe, full, func() ([]string, error) { return matching(full) })
	switch {
	case errors.Is(err, filepath.ErrBadPattern):
		l.Fault(from, "%q is not a pattern; a bracket is not closed, or write \\[ for a literal [", pattern)
	case err != nil:
		l.Fault(from, "%s cannot be read: %v", full, bare(err))
		return nil
	}
	folders, _ := probeBlocking(l.probe, full, func() ([]string, error) { return filepath.Glob(filepath.Dir(full)) })
	for _, folder := range folders {
		l.folder(folder, from)
		if _, err := probeBlocking(l.probe, folder, func() ([]fs.DirEntry, error) { return os.ReadDir(folder) }); err != nil && !errors.Is(err, fs.ErrNotExist) { // else it would seem to be empty
			l.Fault(from, "%s cannot be read: %v", folder, bare(err))
		}
	}
	return names
}

// folder refuses a folder in which others may add files.
func (l *loader) folder(name string, from document.Value) {
	var untrusted *safefile.UntrustedError
	_, err := probeBlocking(l.probe, name, func() (none struct{}, err error) { return none, safefile.InspectFolder(name, l.options.Trust) })
	if errors.As(err, &untrusted) {
		l.Fault(from, "%v", untrusted)
	}
}
