package cronspec

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Zones has the time zones of one version of the IANA database. It is immutable, and safe for concurrent use. A nil *Zones has the zones of
// [BuiltIn].
type Zones struct {
	version string
	names   []string                                  // sorted
	load    func(name string) (*time.Location, error) // loads a zone on its first use
	loaded  sync.Map                                  // *time.Location by name
}

var errUnknownZone = errors.New("unknown zone")

// NewZones returns zones from other data than the built-in data. files has compiled zones (TZif, RFC 9636) by name. NewZones checks all of them.
func NewZones(version string, files map[string][]byte) (*Zones, error) {
	z := &Zones{version: version, names: slices.Sorted(maps.Keys(files))}
	for _, name := range z.names {
		zone, err := parseZone(name, files[name])
		if err != nil {
			return nil, fmt.Errorf("zone %q: %w", name, err)
		}
		z.loaded.Store(name, zone)
	}
	return z, nil
}

// parseZone checks and parses a compiled zone.
func parseZone(name string, data []byte) (*time.Location, error) {
	if !fs.ValidPath(name) || strings.Contains(name, `\`) {
		return nil, errors.New("its name is no path below a folder")
	}
	if err := checkTZif(data); err != nil {
		return nil, err
	}
	zone, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the zone
	}
	for _, month := range []time.Month{time.January, time.July} { // checks the rule after the last transition
		if _, offset := time.Date(2200, month, 1, 0, 0, 0, 0, time.UTC).In(zone).Zone(); !isOffset(offset) {
			return nil, fmt.Errorf("an offset of %d seconds", offset)
		}
	}
	return zone, nil
}

// Location returns the zone with this name, such as "Europe/Berlin". "" and "UTC" return UTC. Names are case-sensitive. An unknown name is an error,
// and so is "Local". Calls with the same name return the same pointer.
func (z *Zones) Location(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	z = z.orBuiltIn()
	if zone, ok := z.loaded.Load(name); ok {
		return zone.(*time.Location), nil
	}
	if _, known := slices.BinarySearch(z.names, name); !known && z.names != nil {
		return nil, fmt.Errorf("load zone %q from zone data %s: %w", name, z.version, errUnknownZone)
	}
	zone, err := z.load(name)
	if err != nil {
		return nil, fmt.Errorf("load zone %q from zone data %s: %w", name, z.version, err)
	}
	kept, _ := z.loaded.LoadOrStore(name, zone)
	return kept.(*time.Location), nil
}

// Names returns the names of all zones, sorted.
func (z *Zones) Names() []string { return slices.Clone(z.orBuiltIn().names) }

// Version returns the version of the data, such as "2026f". As strings, later versions are greater.
func (z *Zones) Version() string { return z.orBuiltIn().version }

func (z *Zones) orBuiltIn() *Zones {
	if z == nil {
		return BuiltIn()
	}
	return z
}

// HashZone returns a hash of the offsets of a zone between two instants. Zones with different data have the same hash if their offsets are the same
// in this time.
func HashZone(zone *time.Location, from, until time.Time) string {
	h := sha256.New()
	first := from.Unix()
	before := periodAt(zone, first)
	fmt.Fprintf(h, "%d %d\n", first, before.offset)
	for at := before.end; at < until.Unix(); at = before.end {
		p := periodAt(zone, at)
		if p.offset != before.offset {
			fmt.Fprintf(h, "%d %d\n", at, p.offset)
		}
		before = p
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
