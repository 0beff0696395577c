package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
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
	// History is [history], as far as it is sound.
	History History
}

// ReadAccess reads the namespace, [redis] and [history] of a configuration that Load refuses, and nothing else of it.
func ReadAccess(path string, o Options) Access {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	r := newReader(o)
	r.load(path)
	base := defaults(nil)
	a := Access{Redis: base.Redis, History: base.History}
	a.Namespace, a.NamespaceErr = r.soundNamespace()
	a.RedisErr = r.soundRedis(&a.Redis)
	for _, s := range r.sources {
		if history, set := s.root(r.taken).get("history"); set {
			read(r, history, historyKeys(), &a.History)
		}
	}
	return a
}

// failures is how many faults were found so far, without the warnings.
func (r *reader) failures() int {
	faults, _ := r.faults.split()
	return len(faults)
}

// soundNamespace is the namespace if its key is there once and valid. The default holds only where no other can be meant: all files were read, and no
// key looks like a misplaced or misspelt namespace. Call it when the files were loaded, and nothing else was read.
func (r *reader) soundNamespace() (string, error) {
	var t top
	before, missing, found := r.failures(), r.unreadable(), r.again("namespace")
	for _, s := range r.sources {
		if name, set := s.root(r.taken).get("namespace"); set {
			topKeys().find("namespace").read(r, name, &t)
			found = true
		}
	}
	switch {
	case found && (t.Namespace == "" || r.failures() > before || r.again("namespace")):
		return "", errors.New("its namespace is faulty")
	case found:
		return t.Namespace, nil
	case missing > 0 || r.unread("namespace"):
		return "", errors.New("a part of it cannot be read, which may name a namespace")
	}
	for _, s := range r.sources {
		if key := s.stray(); key != "" {
			return "", fmt.Errorf("its key %q may be meant as the namespace", key)
		}
	}
	return DefaultNamespace, nil
}

// stray is an unknown key at the top level, or a namespace behind the header of a table; "" if there is none.
func (s *source) stray() string {
	const deep = 2 // the depth of [jobs.NAME]
	for _, name := range slices.Sorted(maps.Keys(s.tree)) {
		if table, ok := s.tree[name].(map[string]any); ok {
			if found := misplaced(table, "namespace", deep); found != "" {
				return name + "." + found
			}
		} else if !topKeys().has(name) {
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
func (r *reader) soundRedis(to *Redis) error {
	before := r.failures()
	for _, s := range r.sources {
		if redis, set := s.root(r.taken).get("redis"); set {
			read(r, redis, redisKeys(), to)
		}
	}
	r.checkRedis(to)
	if to.TLS == nil && r.unread("tls") {
		to.TLS = &TLS{} // else a password could go to Sentinels or a Cluster in the clear
	}
	switch {
	case r.failures() > before, r.again("redis", "tls", "url", "quorum"):
		return errors.New("its [redis] is faulty")
	case r.unread("quorum"):
		return errors.New("a part of it cannot be read, which may name a quorum")
	case to.URL == "" && r.unread("redis"):
		return errors.New("a part of it cannot be read, which may have its [redis]")
	}
	return nil
}

// again returns whether a file defines one of these keys or tables a second time: which of the two is meant is not known.
func (r *reader) again(names ...string) bool {
	return slices.ContainsFunc(r.sources, func(s *source) bool {
		return slices.ContainsFunc(s.again, func(t twin) bool { return slices.Contains(names, t.name) })
	})
}

// unread returns whether a word is in text that was not read: a file that is no TOML, or a second definition.
func (r *reader) unread(word string) bool {
	broken := slices.ContainsFunc(r.broken, func(s *source) bool { return strings.Contains(s.text, word) })
	return broken || slices.ContainsFunc(r.sources, func(s *source) bool {
		return slices.ContainsFunc(s.again, func(t twin) bool { return strings.Contains(s.text[t.from:t.upTo], word) })
	})
}

// unreadable is how many files were not read.
func (r *reader) unreadable() int {
	n := r.failures()
	for _, s := range r.sources {
		n -= min(len(s.again), maxTwins) // no more are reported
	}
	return n
}
