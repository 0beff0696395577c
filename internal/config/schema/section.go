package schema

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cronclave/cronclave/internal/config/document"
)

// Section is a kind of table. It has the keys of the table, with functions that read their values into a T.
type Section[T any] struct {
	Keys []Key[T]
	// Later lists keys that are specified but not implemented yet.
	Later []string
	// Once means that each key may be set only once in the whole configuration.
	Once bool
}

// findKey returns the key with a name, or nil.
func (s Section[T]) findKey(name string) *Key[T] {
	for i := range s.Keys {
		if s.Keys[i].Name == name {
			return &s.Keys[i]
		}
	}
	return nil
}

// Names returns the names of all keys, including Later.
func (s Section[T]) Names() []string {
	names := slices.Clone(s.Later)
	for i := range s.Keys {
		names = append(names, s.Keys[i].Name)
	}
	return names
}

// Entry is a key with its effective value, which is nil if the key has neither a value nor a default. A key of an inner table is "table.key".
type Entry struct {
	Key, Kind string
	Value     any
}

// Entries returns all keys of the section with their values in a T, in the order of the section.
func (s Section[T]) Entries(of *T) []Entry {
	all := make([]Entry, 0, 2*len(s.Keys))
	for _, k := range s.Keys {
		if k.Inner == nil {
			all = append(all, Entry{k.Name, k.Kind, k.inForce(of)})
			continue
		}
		for _, e := range k.Inner(of) {
			e.Key = k.Name + "." + e.Key
			all = append(all, e)
		}
	}
	return all
}

// Read reads a table into a T. It reads the keys in alphabetical order.
func (s Section[T]) Read(r *Reader, v document.Value, into *T) {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		r.Mistyped(v, "a table")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		key, _ := v.Get(name)
		known := s.findKey(name)
		switch {
		case known != nil && (!s.Once || r.First(key, "key")):
			known.Read(r, key, into)
		case known != nil:
		case slices.Contains(s.Later, name):
			r.Fault(key.AtKey(), "%s is not supported yet; remove it", keyTitle(key, v))
		default:
			r.reportUnknown(key, v, s.Names(), s.Later)
		}
	}
}

// reportUnknown reports an unknown key. It suggests a similar known key, or names the table in which the key is known.
func (r *Reader) reportUnknown(key, table document.Value, known, later []string) {
	if r.Skip() {
		return
	}
	message := fmt.Sprintf("unknown key %q in [%s]", key.Name, table.Path)
	if table.Path == "" {
		message = "unknown " + keyTitle(key, table)
	}
	near := r.names.Synonyms[key.Name]
	if !slices.Contains(known, near) {
		near = Nearest(key.Name, known)
	}
	r.meant[table.Path+"."+near] = true
	switch home := r.names.Home(key.Name, table.Path); {
	case home != "":
		message += "; it belongs " + home
	case near == "":
	case slices.Contains(later, near):
		message += fmt.Sprintf("; did you mean %q (which is not supported yet)?", near)
	case table.Path == "" && key.IsTable():
		message += fmt.Sprintf("; did you mean [%s]?", near)
	default:
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	r.Fault(key.AtKey(), "%s", message)
}

// keyTitle returns the name of a key together with its table.
func keyTitle(key, table document.Value) string {
	switch {
	case table.Path != "":
		return fmt.Sprintf("%q in [%s]", key.Name, table.Path)
	case key.IsTable():
		return fmt.Sprintf("table [%s]", key.Name)
	}
	return fmt.Sprintf("key %q at the top level", key.Name)
}
