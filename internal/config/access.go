package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

// Access is the way to a cluster, read from a configuration that may be faulty. A doubtful value is an error and not a guess: a command that pauses
// jobs must not act on another cluster than the one that was meant.
type Access struct {
	// Namespace is the cluster's name, unless NamespaceErr says why it is not known.
	Namespace    string
	NamespaceErr error
	// Redis is [redis], unless RedisErr says why it is not known; then it has the settings that were read, for a Redis that is named elsewhere.
	Redis    Redis
	RedisErr error
}

// ReadAccess reads the namespace and [redis] of a configuration that Load refuses, and nothing else of it.
func ReadAccess(path string, o Options) Access {
	l := newLoader(o)
	l.load(path)
	a := Access{Redis: defaults().Redis}
	a.Namespace, a.NamespaceErr = l.soundNamespace()
	a.RedisErr = l.soundRedis(&a.Redis)
	return a
}

// all are the values that the files have at their top levels for a key.
func (l *loader) all(key string) (values []document.Value) {
	for _, root := range l.roots {
		if v, set := root.Get(key); set {
			values = append(values, v)
		}
	}
	return values
}

// soundNamespace is the namespace if its key is there once and valid. The default holds only where no other can be meant: all files were read, and no
// key looks like a misplaced or misspelt namespace. Call it when the files were loaded, and nothing else was read.
func (l *loader) soundNamespace() (name string, err error) {
	before, missing, again := l.Failures(), l.unreadable(), l.repeats("namespace")
	values := l.all("namespace")
	for _, v := range values {
		if one, ok := once(namespace)(l.Reader, v); ok {
			name = one
		}
	}
	switch {
	case again || len(values) > 0 && (name == "" || l.Failures() > before):
		return "", errors.New("its namespace is faulty")
	case len(values) > 0:
		return name, nil
	case missing > 0 || l.unread("namespace"):
		return "", errors.New("a part of it cannot be read, which may name a namespace")
	}
	for _, root := range l.roots {
		if key := stray(root); key != "" {
			return "", fmt.Errorf("its key %q may be meant as the namespace", key)
		}
	}
	return DefaultNamespace, nil
}

// stray is a key at the top level that is unknown or has the name of a table, or a namespace behind the header of a table; "" if there is none.
func stray(root document.Value) string {
	const deep = 2 // the depth of [jobs.NAME]
	tree, _ := root.Raw.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		if table, ok := tree[name].(map[string]any); ok {
			if found := misplaced(table, "namespace", deep); found != "" {
				return name + "." + found
			}
		} else if !slices.ContainsFunc(clusterKeys(), func(k schema.Key[top]) bool { return k.Name == name }) {
			return name
		}
	}
	return ""
}

// misplaced is the path of a key in a table or in those that it holds, down to a depth; "" if it is in none.
func misplaced(table map[string]any, key string, depth int) string {
	if _, is := table[key]; is {
		return key
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if inner, ok := table[name].(map[string]any); ok && depth > 1 {
			if found := misplaced(inner, key, depth-1); found != "" {
				return name + "." + found
			}
		}
	}
	return ""
}

// soundRedis reads [redis]. A fault in it leaves it unknown as a whole: without its quorum, its url names a Redis that has no locks.
func (l *loader) soundRedis(to *Redis) error {
	before := l.Failures()
	for _, redis := range l.all("redis") {
		redisKeys().Read(l.Reader, redis, to)
	}
	checkRedis(l.Reader, to)
	newFileChecks(l.Report, l.options).ofReplica(l.Reader, to, nil)
	if to.TLS == nil && l.unread("tls") {
		to.TLS = &TLS{} // else a password could go to Sentinels or a Cluster in the clear
	}
	switch {
	case l.Failures() > before, l.repeats("redis", "tls", "url", "quorum"):
		return errors.New("its [redis] is faulty")
	case l.unread("quorum"):
		return errors.New("a part of it cannot be read, which may name a quorum")
	case to.URL == "" && l.unread("redis"):
		return errors.New("a part of it cannot be read, which may have its [redis]")
	}
	return nil
}

// repeats returns whether a file defines one of these keys or tables a second time: which of the two is meant is not known.
func (l *loader) repeats(names ...string) bool {
	return slices.ContainsFunc(l.files, func(f *document.File) bool { return f.Repeats(names...) })
}

// unread returns whether a word is in text that was not read.
func (l *loader) unread(word string) bool {
	return slices.ContainsFunc(l.files, func(f *document.File) bool { return f.Unread(word) })
}

// unreadable is how many files were not read.
func (l *loader) unreadable() int {
	n := l.Failures()
	for _, f := range l.files {
		n -= f.Repeated() // which are faults as well
	}
	return n
}
