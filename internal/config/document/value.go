package document

import (
	"path/filepath"
	"strings"
	"time"
)

// Value is one TOML value with its position.
type Value struct {
	src  *File
	at   *place
	Path string // the keys from the top level to this value, as the user writes them: "jobs.backup.timeout"
	Name string // the last key of Path; for an element of a list, the name of the list
	Raw  any
}

// Absent returns a value that stands for a file or folder that can't be read. Faults about it are at line 1.
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

// AtKey returns the value with the position of its key, for a fault about the key.
func (v Value) AtKey() Value { return v.movedTo(v.at.key) }

// AtByte returns a string value with the position of byte n of the string.
func (v Value) AtByte(n int) Value {
	if at := v.at.val; at < len(v.src.text.string) && (v.src.text.string[at] == '"' || v.src.text.string[at] == '\'') {
		return v.movedTo(writtenAt(v.src.text.string, at, n))
	}
	return v
}

func (v Value) movedTo(at int) Value {
	v.at = &place{key: v.at.key, val: at}
	return v
}

// File returns the name of the value's file.
func (v Value) File() string { return v.src.name }

// Line returns the line of the value's key, from 1.
func (v Value) Line() int { return v.src.newFault(v.at.key, "").Line }

// KeyPlace returns FILE:LINE:COL of the value's key. Faults at other places use it to refer to the key.
func (v Value) KeyPlace() string { return v.src.placeAt(v.at.key) }

// Written returns the value as it is written in the file. The value must not be a string, list or table.
func (v Value) Written() string {
	rest := v.src.text.string[min(v.at.val, len(v.src.text.string)):]
	if end := strings.IndexAny(rest, ",]}#\r\n"); end >= 0 {
		rest = rest[:end]
	}
	return strings.TrimSpace(rest)
}

// Relative resolves a path against the folder of the value's file.
func (v Value) Relative(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(v.src.name), path)
}

// IsTable reports whether the value is a table.
func (v Value) IsTable() bool { return v.Kind() == "a table" }

// Kind returns the type of the value, in words for messages.
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
