package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/internal/safefile"
)

// Options configure [Load].
type Options struct {
	// Env looks up an environment variable. Defaults to os.LookupEnv.
	Env func(name string) (value string, set bool)
	// KeepUnset leaves ${NAME} of an unset variable as it is, and skips the checks of the value that contains it. The Spec of a job may then be nil, so the
	// result must not be used to run jobs.
	KeepUnset bool
	// Files, if not nil, receives the paths of all files and folders that Load read or looked for, even if there are faults.
	Files *Files
	// Trust restricts the owners of the configuration's files, and of the files that it names. With a restriction, Load also warns about secrets that other
	// users may read.
	Trust safefile.Trust
	// Rights returns the identity under which a job's files are opened. If Rights or its result is nil, they are opened as this process's own user.
	Rights func(user, group string) (*safefile.Identity, error)
	// Machine enables warnings about users, folders, files and programs of jobs that are missing on this machine.
	Machine bool
	// SystemZones is the folder of the machine's own time zones. If Machine is set and these zones are newer than the zones that the jobs use, Load warns.
	// Defaults to /usr/share/zoneinfo.
	SystemZones string
	// Now returns the current time, which decides whether a job has expired. Defaults to time.Now.
	Now func() time.Time
}

// Load reads the configuration at path, a file or a folder of *.toml files. If it has faults, the error is [Faults] with all faults and warnings.
func Load(path string, o Options) (*Config, error) {
	l := newLoader(o)
	l.loadPath(path)
	return l.finish()
}

// Parse reads a configuration from text, as Load reads it from a file with this name.
func Parse(name, text string, o Options) (*Config, error) {
	l := newLoader(o)
	l.order[name] = 0
	if err := l.bounds.Take(len(text)); err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	l.parseFile(document.New(name, text))
	return l.finish()
}

// finish returns the configuration of all files that were read.
func (l *loader) finish() (*Config, error) {
	files := newFileChecks(l.Report, l.options)
	c := assembleConfig(l.Reader, l.roots, files, l.options)
	found := l.Sorted(l.order)
	faults, warnings := found.Split()
	if len(faults) > 0 {
		return nil, found
	}
	c.Warnings, c.Trust, c.EnvTaken, c.Unchecked = warnings, l.options.Trust, l.taken, files.skipped
	return c, nil
}

type loader struct {
	*schema.Reader
	options Options
	bounds  *document.Bounds
	files   []*document.File
	probe   *mountProbe
	roots   []document.Value // top levels of the files that could be parsed
	order   map[string]int   // position of each file in the order in which the files were found, by name
	known   map[string]bool  // files that were read, by real path
	taken   map[string]bool  // becomes Config.EnvTaken
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
		Reader:  schema.NewReader(&document.Report{}, variables, schema.Names{Home: knownTable, Synonyms: synonyms}),
		options: o,
		bounds:  document.NewBounds(),
		probe:   &mountProbe{perPath: 5 * time.Second, inAll: 30 * time.Second},
		order:   make(map[string]int),
		known:   make(map[string]bool),
		taken:   taken,
	}
}

func (l *loader) loadPath(path string) {
	l.order[path] = 0
	l.watchPath(path, false)
	at := document.Absent(path)
	info, err := probeBlocking(l.probe, path, func() (fs.FileInfo, error) { return os.Stat(path) })
	switch {
	case err != nil:
		l.Fault(at, "cannot be read: %v", bareError(err))
	case !info.IsDir():
		l.loadFile(path, at)
	default:
		files := l.matchingFiles(path, "*.toml", at)
		if len(files) == 0 {
			l.Fault(at, "no *.toml file in this folder")
		}
		for _, file := range files {
			l.loadFile(file, at)
		}
	}
}

// loadFile reads a file and the files that it includes, unless the file was read before. A file that can't be read is a fault at from, the value that names
// it.
func (l *loader) loadFile(name string, from document.Value) {
	l.watchPath(name, false)
	path, err := probeBlocking(l.probe, name, func() (string, error) { return realPath(name), nil })
	if err != nil {
		l.Fault(from, "%s cannot be read: %v", name, bareError(err))
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
		l.Fault(from, "%s cannot be read: %v", name, bareError(err))
	default:
		l.parseFile(document.New(name, string(text)))
	}
}

// watchPath must be called before the file is read: see [Files.addPath].
func (l *loader) watchPath(name string, pattern bool) {
	if l.options.Files != nil {
		l.options.Files.addPath(l.probe, name, pattern)
	}
}

func (l *loader) parseFile(f *document.File) {
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
		l.loadIncludes(include)
	}
}

// loadIncludes resolves names and patterns against the folder of the including file.
func (l *loader) loadIncludes(v document.Value) {
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
			l.loadFile(item.Relative(e.Text), item)
		default:
			folder := ""
			if !filepath.IsAbs(e.Text) {
				folder = filepath.Dir(item.File())
			}
			for _, name := range l.matchingFiles(folder, e.Text, item) {
				l.loadFile(name, item)
			}
		}
		return e.Text, ok
	})
}

// matchingFiles returns the files that match a pattern, sorted. The pattern is relative to folder, unless folder is "".
func (l *loader) matchingFiles(folder, pattern string, from document.Value) []string {
	full := pattern
	if folder != "" {
		full = filepath.Join(escapePattern(folder), pattern)
	}
	l.watchPath(full, true)
	names, err := probeBlocking(l.probe, full, func() ([]string, error) { return matchFiles(full) })
	switch {
	case errors.Is(err, filepath.ErrBadPattern):
		l.Fault(from, "%q is not a pattern; a bracket is not closed, or write \\[ for a literal [", pattern)
	case err != nil:
		l.Fault(from, "%s cannot be read: %v", full, bareError(err))
		return nil
	}
	folders, _ := probeBlocking(l.probe, full, func() ([]string, error) { return filepath.Glob(filepath.Dir(full)) })
	for _, folder := range folders {
		l.checkFolder(folder, from)
		// Without this check, a folder that can't be read would seem to be empty.
		if _, err := probeBlocking(l.probe, folder, func() ([]fs.DirEntry, error) { return os.ReadDir(folder) }); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.Fault(from, "%s cannot be read: %v", folder, bareError(err))
		}
	}
	return names
}

// checkFolder reports a folder to which untrusted users may add files.
func (l *loader) checkFolder(name string, from document.Value) {
	var untrusted *safefile.UntrustedError
	_, err := probeBlocking(l.probe, name, func() (none struct{}, err error) { return none, safefile.InspectFolder(name, l.options.Trust) })
	if errors.As(err, &untrusted) {
		l.Fault(from, "%v", untrusted)
	}
}

// Access has the namespace and the Redis of a cluster from a configuration that may be faulty. If one of the two is uncertain, its error is set, because a
// command that pauses jobs must not act on a cluster that the user did not mean.
type Access struct {
	// Namespace is the cluster's name. It is "" if NamespaceErr is not nil.
	Namespace    string
	NamespaceErr error
	// Redis is [redis]. If RedisErr is not nil, Redis has only the settings that could be read, for use with a URL from a flag or the environment.
	Redis    Redis
	RedisErr error
}

// ReadAccess reads only the namespace and [redis]. Some commands use it if Load has refused the configuration.
func ReadAccess(path string, o Options) Access {
	l := newLoader(o)
	l.loadPath(path)
	a := Access{Redis: defaultConfig().Redis}
	a.Namespace, a.NamespaceErr = l.soundNamespace()
	a.RedisErr = l.soundRedis(&a.Redis)
	return a
}

func (l *loader) rootValues(key string) (values []document.Value) {
	for _, root := range l.roots {
		if v, set := root.Get(key); set {
			values = append(values, v)
		}
	}
	return values
}

// soundNamespace returns the namespace if its key is set once and valid. It returns the default only if the user can't have meant another name: every file
// was read, and no key looks like a misplaced or misspelt namespace. Call it after the files were loaded and before any key is
// read, because unreadableFiles counts all faults so far.
func (l *loader) soundNamespace() (name string, err error) {
	before, missing, again := l.Failures(), l.unreadableFiles(), l.hasRepeated("namespace")
	values := l.rootValues("namespace")
	for _, v := range values {
		if one, ok := readOnce(readNamespace)(l.Reader, v); ok {
			name = one
		}
	}
	switch {
	case again || len(values) > 0 && (name == "" || l.Failures() > before):
		return "", errors.New("its namespace is faulty")
	case len(values) > 0:
		return name, nil
	case missing > 0 || l.hasUnread("namespace"):
		return "", errors.New("a part of it cannot be read, which may name a namespace")
	}
	for _, root := range l.roots {
		if key := strayKey(root); key != "" {
			return "", fmt.Errorf("its key %q may be meant as the namespace", key)
		}
	}
	return DefaultNamespace, nil
}

// strayKey returns a key that may be meant as the namespace, or "". It is a key of the top level that is unknown or should be a table and is not, or a key
// named namespace below the header of a table.
func strayKey(root document.Value) string {
	const deep = 2 // keys in [jobs.NAME] are two levels below the top
	tree, _ := root.Raw.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		if table, ok := tree[name].(map[string]any); ok {
			if found := misplacedKey(table, "namespace", deep); found != "" {
				return name + "." + found
			}
		} else if !slices.ContainsFunc(clusterKeys(), func(k schema.Key[top]) bool { return k.Name == name }) {
			return name
		}
	}
	return ""
}

// misplacedKey returns the path of a key in a table, or in its inner tables down to a depth, or "".
func misplacedKey(table map[string]any, key string, depth int) string {
	if _, is := table[key]; is {
		return key
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if inner, ok := table[name].(map[string]any); ok && depth > 1 {
			if found := misplacedKey(inner, key, depth-1); found != "" {
				return name + "." + found
			}
		}
	}
	return ""
}

// soundRedis reads [redis] and returns an error for any fault in it. With a quorum, url names the Redis for the history. If a faulty quorum were ignored, a
// command would look for locks in that Redis.
func (l *loader) soundRedis(to *Redis) error {
	before := l.Failures()
	for _, redis := range l.rootValues("redis") {
		redisKeys().Read(l.Reader, redis, to)
	}
	checkRedis(l.Reader, to)
	newFileChecks(l.Report, l.options).ofReplica(l.Reader, to, nil)
	if to.TLS == nil && l.hasUnread("tls") {
		to.TLS = &TLS{} // require TLS, because a password could otherwise be sent to Sentinels or a Cluster unencrypted
	}
	switch {
	case l.Failures() > before, l.hasRepeated("redis", "tls", "url", "quorum"):
		return errors.New("its [redis] is faulty")
	case l.hasUnread("quorum"):
		return errors.New("a part of it cannot be read, which may name a quorum")
	case to.URL == "" && l.hasUnread("redis"):
		return errors.New("a part of it cannot be read, which may have its [redis]")
	}
	return nil
}

func (l *loader) hasRepeated(names ...string) bool {
	return slices.ContainsFunc(l.files, func(f *document.File) bool { return f.Repeats(names...) })
}

func (l *loader) hasUnread(word string) bool {
	return slices.ContainsFunc(l.files, func(f *document.File) bool { return f.Unread(word) })
}

// unreadableFiles returns the number of faults that kept files from being read.
func (l *loader) unreadableFiles() int {
	n := l.Failures()
	for _, f := range l.files {
		n -= f.Repeated() // a repeated key is a fault, but its file was read
	}
	return n
}
