package cronspec

import (
	"archive/zip"
	_ "embed" // for the zone data
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"
)

// The zone data and its version come from the Go distribution; `go generate` copies
// its newer data. A change of the data may move ticks, so it belongs into the
// changelog.
//
//go:generate cp $GOROOT/lib/time/zoneinfo.zip zoneinfo.zip
//go:generate sh -c "sed -n s/^DATA=//p $GOROOT/lib/time/update.bash >zoneinfo.version"

//go:embed zoneinfo.zip
var zoneArchive string

//go:embed zoneinfo.version
var zoneVersion string

// zones is the archive, opened once.
var zones = sync.OnceValues(func() (*zip.Reader, error) {
	return zip.NewReader(strings.NewReader(zoneArchive), int64(len(zoneArchive)))
})

// loaded holds the zones that were loaded: *time.Location by name.
var loaded sync.Map

// LoadLocation returns the time zone with a name of the IANA database, such as
// "Europe/Berlin"; "" and "UTC" are UTC. Unlike [time.LoadLocation] it uses only
// the data that is built into this package: it reads no zone file of the machine
// and no environment, so it gives the same answer on every machine that runs the
// same version. "Local" is therefore an error, as is any other name that the data
// lacks; names are case-sensitive.
//
// A name always gives the same pointer. LoadLocation is safe for concurrent use.
func LoadLocation(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if zone, ok := loaded.Load(name); ok {
		return zone.(*time.Location), nil
	}
	archive, err := zones()
	if err != nil {
		return nil, fmt.Errorf("open the built-in zone data: %w", err)
	}
	data, err := fs.ReadFile(archive, name) // refuses "..", "/x" and the like
	if err != nil {
		return nil, fmt.Errorf("load zone %q from the built-in data %s: %w", name, ZoneDataVersion(), err)
	}
	zone, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, fmt.Errorf("load zone %q: %w", name, err)
	}
	kept, _ := loaded.LoadOrStore(name, zone)
	return kept.(*time.Location), nil
}

// ZoneNames returns the names that [LoadLocation] knows, sorted.
func ZoneNames() []string {
	archive, err := zones()
	if err != nil {
		return nil // LoadLocation returns the error
	}
	names := make([]string, len(archive.File))
	for i, f := range archive.File {
		names[i] = f.Name
	}
	slices.Sort(names)
	return names
}

// ZoneDataVersion returns the version of the IANA database that is built in, such
// as "2025c".
func ZoneDataVersion() string { return strings.TrimSpace(zoneVersion) }
