package importer

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// A File is one input. Its name is its path, or "stdin".
type File struct{ Name, Text string }

const stdin = "stdin"

// Options configure [Convert].
type Options struct {
	// Source is one of [Sources].
	Source string
	// Dialect is one of [Dialects]; "" means debian. It is for the source crontab only.
	Dialect string
	// System reports whether crontabs have a field for the user. If it is nil, a file has one if its path is a system's, or if each line names a usual user.
	System *bool
	// Timezone is the zone for times without a zone.
	Timezone string
}

// A conversion is one call of [Convert].
type conversion struct {
	Options
	dialect  dialect
	zone     *time.Location
	names    namer
	entries  []*entry
	pools    map[string]int
	intro    []string
	warnings []string
	unzoned  bool // a job has no zone of its own, and Options.Timezone is empty
}

func (c *conversion) newEntry(place string, lines ...string) *entry {
	e := &entry{place: place, source: lines}
	c.entries = append(c.entries, e)
	return e
}

// refuseFile adds a refused entry for a file that cannot be read as a whole.
func (c *conversion) refuseFile(name, format string, args ...any) {
	c.newEntry(name, "the whole file").refuse(format, args...)
}

// useZone sets the zone of an entry, and returns it. If name is empty, it is the zone of the options.
func (c *conversion) useZone(e *entry, name string) *time.Location {
	if name == "" {
		c.unzoned = c.unzoned || c.Timezone == ""
		e.zone = c.zone.String()
		return c.zone
	}
	zone, err := cronspec.LoadLocation(name)
	if err != nil {
		e.refuse("the time zone %q is not known", name)
		return c.zone
	}
	e.zone = name
	return zone
}

// warn adds a sentence for the user, once.
func (c *conversion) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.warnings, text) {
		c.warnings = append(c.warnings, text)
	}
}

func sortedKeys[T any](m map[string]T) []string {
	return slices.Sorted(maps.Keys(m))
}
