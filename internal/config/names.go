package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// NameRule describes valid names, for use in messages.
const NameRule = "a letter or a digit, then up to 127 letters, digits, '_' and '-'"

// ValidName reports whether a name is valid for a job, a lock or a namespace: see [NameRule].
func ValidName(name string) bool { return namePattern.MatchString(name) }

// eachNamed calls each for the inner tables of [jobs], [pools] or [calendars].
func eachNamed(r *schema.Reader, v document.Value, kind string, each func(document.Value)) {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		r.Mistyped(v, fmt.Sprintf("a table with a table for each %s: [%ss.NAME]", kind, kind))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		one, _ := v.Get(name)
		switch {
		case !one.IsTable():
			r.Fault(one.AtKey(), "%q is not a %s; a %s is a table with a name: [%ss.NAME]", name, kind, kind, kind)
		case r.First(one, kind):
			if _, err := validName(name); err != nil {
				r.Fault(one.AtKey(), "%s %q %v", kind, name, err)
			}
			each(one) // called even for an invalid name, to report the other faults in the table
		}
	}
}

// suggestName returns the end of a message about an unknown name: a suggestion of a known name, or the remedy. It makes no suggestion for a name with values
// from the environment, because the suggestion might reveal them.
func suggestName(name schema.Expansion, known []string, remedy string) string {
	if near := schema.Nearest(name.Text, known); near != "" && len(name.Names) == 0 {
		return "; did you mean \"" + near + "\"?"
	}
	return "; " + remedy
}

func validName(s string) (string, error) {
	if !ValidName(s) {
		return s, errors.New("is not a name; write " + NameRule)
	}
	return s, nil
}

// zoneReader is a function that reads a time zone by its name.
type zoneReader = func(*schema.Reader, document.Value) (*time.Location, bool)

// zoneKey returns a key for a time zone. The zone is looked up in the zone data that zones returns. wrap may add a check to the reader.
func zoneKey[T any](name string, field func(*T) **time.Location, zones func(*T) *cronspec.Zones, wrap func(zoneReader) zoneReader, doc string) schema.Key[T] {
	key := schema.Field(name, schema.KindString, field, nil, doc)
	key.Read = func(r *schema.Reader, v document.Value, to *T) {
		read := wrap(func(r *schema.Reader, v document.Value) (*time.Location, bool) {
			return schema.Parsed(r, v, "a string", func(name string) (*time.Location, error) { return parseZone(zones(to), name) })
		})
		if zone, ok := read(r, v); ok {
			*field(to) = zone
		}
	}
	return key
}

// parseZone returns the zone with a name. It refuses "Local", which means different zones on different machines.
func parseZone(zones *cronspec.Zones, name string) (*time.Location, error) {
	if name == "Local" || name == "" {
		return nil, errors.New(`is not a time zone that is the same on every machine; write a name such as "Europe/Berlin" or "UTC"`)
	}
	zone, err := zones.Location(name)
	if err != nil {
		if near := nearestZone(zones, name); near != "" {
			return nil, fmt.Errorf("is not a time zone; did you mean %q?", near)
		}
		if zones != nil {
			return nil, fmt.Errorf("is not a time zone in the zone data %s of zone_data", zones.Version())
		}
		return nil, errors.New(`is not a time zone; write a name such as "Europe/Berlin" or "UTC"`)
	}
	return zone, nil
}

// nearestZone returns the known zone that is at most two edits away from a name, or "". It only suggests zones of places. Abbreviations are easily confused
// with each other, and Etc/GMT+5 is behind UTC, which surprises users.
func nearestZone(zones *cronspec.Zones, name string) string {
	const enough = 3
	best, least := "", enough
	for _, zone := range zones.Names() {
		apart := len(zone) - len(name)
		if !strings.Contains(zone, "/") || strings.HasPrefix(zone, "Etc/") || apart >= enough || apart <= -enough {
			continue
		}
		if d := schema.Edits(strings.ToLower(name), strings.ToLower(zone)); d < least {
			best, least = zone, d
		}
	}
	return best
}
