package cronspec

import (
	"archive/zip"
	_ "embed" // for the zone data
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"time"
)

// The zone data comes from Debian's security updates. A change of the data moves ticks, so mention it in the changelog.
//
//go:generate ./zones.sh

//go:embed zoneinfo.zip
var zoneArchive string

// versionFile is the name of the file with the version of the zone data.
const versionFile = "+VERSION"

// BuiltIn returns the zones that are embedded in this package.
func BuiltIn() *Zones { return builtIn() }

var builtIn = sync.OnceValue(openBuiltIn)

// openBuiltIn opens the embedded archive. An error means that the build is broken, which tests detect: then loading any zone returns the error.
func openBuiltIn() *Zones {
	archive, err := zip.NewReader(strings.NewReader(zoneArchive), int64(len(zoneArchive)))
	if err != nil {
		return &Zones{load: func(string) (*time.Location, error) { return nil, fmt.Errorf("open the built-in zone data: %w", err) }}
	}
	z := &Zones{load: func(name string) (*time.Location, error) {
		data, err := fs.ReadFile(archive, name) // ReadFile refuses invalid paths such as ".." and "/x"
		if err != nil {
			return nil, err //nolint:wrapcheck // Location names the zone
		}
		return time.LoadLocationFromTZData(name, data)
	}}
	for _, f := range archive.File { // sorted
		if f.Name != versionFile {
			z.names = append(z.names, f.Name)
			continue
		}
		if r, err := f.Open(); err == nil {
			text, _ := io.ReadAll(r) // after an error the version is empty, which a test detects
			z.version = strings.TrimSpace(string(text))
		}
	}
	return z
}

// LoadLocation returns the time zone with a name from the IANA database, such as "Europe/Berlin", from the built-in zones: see [Zones.Location].
// Unlike [time.LoadLocation], it does not use zone files or environment variables of the machine, so the same version of this package returns the
// same zone on every machine.
func LoadLocation(name string) (*time.Location, error) { return BuiltIn().Location(name) }
