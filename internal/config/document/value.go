package document

import (
	"path/filepath"
	"strings"
	"time"
)

// Value is one TOML value with its place.
type Value struct {
	src  *File
	at   *place
	Path string // of keys, as the user would write it: "jobs.backup.timeout"
	Name string // the last of them; an element of a list has its list's name
	Raw  any
}

// Absent stands for a file or folder that cannot be read.
func Absent(name string) Value { return Value{src: New(name, ""), at: &place{}} }

// Get returns the value of a key in a table.
func (v Value) Get(key string) (Value, bool) {
	table, _ := v.Raw.(map[string]any)
	raw, found := table[key]
	c := Value{src: v.src, at: v.at, Path: key, Name: key, Raw: raw}
	if v.Path != "" {
		c.Path = v.Path + "." + key
	}
	if at := v.at.keys[key]; at != nil {
		c.at = at
	}
	return c, found
}

// Items returns the elements of a list.
func (v Value) Items() []Value {
	list, _ := v.Raw.([]any)
	items := make([]Value, len(list))
	for i, raw := range list {
		items[i] = v
		items[i].Raw = raw
		if i < len(v.at.items) {
			items[i].at = v.at.items[i]
		}
	}
	return items
}

// AtKey is the value with the place of its key, for a fault that is about the key.
func (v Value) AtKey() Value { return v.moved(v.at.key) }

// AtByte is a string value with the place of its byte n.
func (v Value) AtByte(n int) Value {
	if at := v.at.val; at < len(v.src.text.string) && (v.src.text.string[at] == '"' || v.src.text.string[at] == '\'') {
		return v.moved(written(v.src.text.string, at, n))
	}
	return v
}

func (v Value) moved(at int) Value {
	v.at = &place{key: v.at.key, val: at}
	return v
}

// File is the name of the file that the value is in.
func (v Value) File() string { return v.src.name }

// Line is that of the value's key, from 1.
func (v Value) Line() int { return v.src.fault(v.at.key, "").Line }

// KeyPlace is FILE:LINE:COL of the value's key, for a fault elsewhere that points to it.
func (v Value) KeyPlace() string { return v.src.place(v.at.key) }

// Written is the value as the file has it, where that is no string, list or table.
func (v Value) Written() string {
	rest := v.src.text.string[min(v.at.val, len(v.src.text.string)):]
	if end := strings.IndexAny(rest, ",]}#\r\n"); end >= 0 {
		rest = rest[:end]
	}
	return strings.TrimSpace(rest)
}

// Relative makes a path that this file names relative to the file's folder.
func (v Value) Relative(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(v.src.name), path)
}

// IsTable returns whether the value is a table.
func (v Value) IsTable() bool { return v.Kind() == "a table" }

// Kind names the value's type as users know it.
func (v Value) Kind() string {
	switch v.Raw.(type) {
	case string:
		return "a string"
	case int64:
		return "a whole number"
	case float64:
		return "a number with a fraction"
	case bool:
		return "true or false"
	case time.Time:
		return "a date"
	case map[string]any:
		return "a table"
	case []map[string]any:
		return "a list of tables"
	}
	return "a list"
}
