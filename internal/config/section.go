package config

import (
	"fmt"
	"maps"
	"slices"
)

// section is a kind of table: which keys it has and what reads each of them into a T.
type section[T any] struct {
	keys map[string]func(*reader, value, *T)
	// later are the keys that are specified and do not work yet.
	later []string
	// once is set where each key may be given once in the whole configuration.
	once bool
}

// read reads a table by its section. Keys are read in the order of their names.
func read[T any](r *reader, v value, s section[T], into *T) {
	table, ok := v.raw.(map[string]any)
	if !ok {
		r.mistyped(v, "a table")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		key, _ := v.get(name)
		set, known := s.keys[name]
		switch {
		case known && (!s.once || r.first(key, "key")):
			set(r, key, into)
		case known:
		case slices.Contains(s.later, name):
			r.faultAt(key, key.at.key, "%s is not supported yet; remove it", key.title(v))
		default:
			r.unknown(key, v, slices.Collect(maps.Keys(s.keys)), s.later)
		}
	}
}

// first notes where a setting or a job is, and tells a fault if it is elsewhere already, in another file.
func (r *reader) first(v value, kind string) bool {
	before, again := r.set[v.path]
	if again {
		r.faultAt(v, v.at.key, "%s", alreadyDefined(kind, v.name, before.where()))
		return false
	}
	r.set[v.path] = v
	return true
}

// unknown tells that nobody knows a key, and which one may be meant.
func (r *reader) unknown(key, table value, keys, later []string) {
	if r.full() {
		r.count.faults++
		return
	}
	message := "unknown key " + fmt.Sprintf("%q in [%s]", key.name, table.path)
	if table.path == "" {
		message = "unknown " + key.title(table)
	}
	near := nearest(key.name, slices.Concat(keys, later))
	r.meant[table.path+"."+near] = true
	switch home := belongs(key.name, table.path); {
	case home != "":
		message += "; it belongs " + home
	case near == "":
	case slices.Contains(later, near):
		message += fmt.Sprintf("; did you mean %q (which is not supported yet)?", near)
	case table.path == "" && key.isTable():
		message += fmt.Sprintf("; did you mean [%s]?", near)
	default:
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	r.faultAt(key, key.at.key, "%s", message)
}

func (v value) isTable() bool { return v.kind() == "a table" }

// title names a key together with the table that it is in.
func (v value) title(table value) string {
	switch {
	case table.path != "":
		return fmt.Sprintf("%q in [%s]", v.name, table.path)
	case v.isTable():
		return fmt.Sprintf("table [%s]", v.name)
	}
	return fmt.Sprintf("key %q at the top level", v.name)
}

// belongs tells where a key that is unknown in one table is known: what stands behind a table's header belongs to that
// table, which is easily forgotten.
func belongs(key, table string) string {
	switch {
	case table != "" && topKeys().has(key):
		return "at the top level, above the first [table]"
	case jobKeys().has(key):
		return "in [jobs.NAME] or [defaults]"
	case redisKeys().has(key):
		return "in [redis]"
	case replicaKeys().has(key):
		return "in [replica]"
	case historyKeys().has(key):
		return "in [history]"
	case heartbeatKeys().has(key):
		return "in [heartbeat]"
	case poolKeys().has(key):
		return "in [pools.NAME]"
	case calendarKeys().has(key):
		return "in [calendars.NAME]"
	}
	return ""
}

func (s section[T]) has(key string) bool {
	return s.keys[key] != nil || slices.Contains(s.later, key)
}
