package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

// Access describes how to reach a cluster, according to a configuration that may be faulty. If a value is uncertain, its field is empty and an error is set,
// because a command that pauses jobs must not act on a cluster that the user did not mean.
type Access struct {
	// Namespace is the cluster's name. It is "" if NamespaceErr is not nil.
	Namespace    string
	NamespaceErr error
	// Redis is [redis]. If RedisErr is not nil, Redis has only the settings that could be read, for use with a URL from a flag or the environment.
	Redis    Redis
	RedisErr error
}

// ReadAccess reads only the namespace and [redis]. It serves commands whose configuration Load refuses.
func ReadAccess(path string, o Options) Access {
	l := newLoader(o)
	l.loadPath(path)
	a := Access{Redis: defaultConfig().Redis}
	a.Namespace, a.NamespaceErr = l.soundNamespace()
	a.RedisErr = l.soundRedis(&a.Redis)
	return a
}

// rootValues returns the values of a key at the top levels of all files.
func (l *loader) rootValues(key string) (values []document.Value) {
	for _, root := range l.roots {
		if v, set := root.Get(key); set {
			values = append(values, v)
		}
	}
	return values
}

// soundNamespace returns the namespace if its key is set once and valid. It returns the default only if the user can't have meant another name: every file
// was read, and no key looks like a misplaced or misspelt namespace. Call it after the files were loaded, and before any key is read.
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

// strayKey returns a key at the top level that may be meant as the namespace, or "". Such a key is unknown, is the name of a table without being one, or is a
// namespace below the header of a table.
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

// misplacedKey returns the path of a key in a table, or in its inner tables down to a depth. It returns "" if the key is not there.
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

// soundRedis reads [redis] and returns an error for any fault in it. A faulty quorum must not be ignored, because then url would name a Redis that holds no
// locks.
func (l *loader) soundRedis(to *Redis) error {
	before := l.Failures()
	for _, redis := range l.rootValues("redis") {
		redisKeys().Read(l.Reader, redis, to)
	}
	checkRedis(l.Reader, to)
	newFileChecks(l.Report, l.options).ofReplica(l.Reader, to, nil)
	if to.TLS == nil && l.hasUnread("tls") {
		to.TLS = &TLS{} // otherwise a password could be sent to Sentinels or a Cluster unencrypted
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

// hasRepeated reports whether a file defines one of these keys or tables twice, so that the user's intention is unknown.
func (l *loader) hasRepeated(names ...string) bool {
	return slices.ContainsFunc(l.files, func(f *document.File) bool { return f.Repeats(names...) })
}

// hasUnread reports whether a text that could not be parsed contains a word.
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
