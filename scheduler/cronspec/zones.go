package cronspec

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	_ "embed" // for the zone data
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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

// Version returns the version of the data, such as "2026f". Later versions are greater when compared as strings.
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

// The zone data comes from Debian's security updates. A change of the data moves ticks, so mention it in the changelog.
//
//go:generate ./zones.sh

//go:embed zoneinfo.zip
var zoneArchive string

const versionFile = "+VERSION"

// BuiltIn returns the zones that are embedded in this package.
func BuiltIn() *Zones { return builtIn() }

var builtIn = sync.OnceValue(openBuiltIn)

// openBuiltIn opens the embedded archive. An error means that the build is broken, which tests detect. After an error, loading any zone returns this
// error.
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
	for _, f := range archive.File { // the archive is sorted by name
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

const (
	tzifMagic = "TZif"
	// tzifHeader is the length of the header of a TZif block in bytes: magic, version, 15 unused bytes, and six counts. tzifCounts is the offset of the
	// counts.
	tzifHeader, tzifCounts = 44, 20
	// mostTransitions is the limit in zic, the compiler of the IANA database.
	mostTransitions = 2000
	mostTypes       = 256
)

// A tzifBlock has the counts of one of the two blocks of a TZif file. width is the size of its times in bytes: 4 in the first block, 8 in the second.
type tzifBlock struct {
	utc, std, leaps, times, types, chars int
	width                                int
}

// size returns the number of bytes of the block after its header.
func (b tzifBlock) size() int {
	return b.times*b.width + b.times + b.types*6 + b.chars + b.leaps*(b.width+4) + b.std + b.utc
}

// checkTZif checks a compiled zone against RFC 9636. It checks what package time does not: the order and the number of the transitions, and the
// offsets. It refuses a zone with leap seconds, because package time ignores them.
func checkTZif(data []byte) error {
	block, rest, err := readTZifBlock(data, 4)
	if err != nil {
		return err
	}
	if data[len(tzifMagic)] != 0 { // in version 2 and later, the second block has the data
		if block, rest, err = readTZifBlock(rest[block.size():], 8); err != nil {
			return err
		}
	}
	if block.leaps > 0 {
		return errors.New("it counts leap seconds")
	}
	return block.checkTransitions(rest)
}

// readTZifBlock parses the header of a block. rest is the data after the header, and contains at least the whole block.
func readTZifBlock(data []byte, width int) (b tzifBlock, rest []byte, err error) {
	if len(data) < tzifHeader || !bytes.HasPrefix(data, []byte(tzifMagic)) {
		return b, nil, errors.New("it is no TZif file, or is cut off")
	}
	var counts [6]int
	for i := range counts {
		n := binary.BigEndian.Uint32(data[tzifCounts+4*i:])
		if n > mostTransitions {
			return b, nil, fmt.Errorf("a count of %d in its header", n)
		}
		counts[i] = int(n)
	}
	b = tzifBlock{counts[0], counts[1], counts[2], counts[3], counts[4], counts[5], width}
	if rest = data[tzifHeader:]; b.types > mostTypes || len(rest) < b.size() {
		return b, nil, errors.New("it is cut off")
	}
	return b, rest, nil
}

func (b tzifBlock) checkTransitions(data []byte) error {
	for i := range b.times {
		if b.types <= int(data[b.times*b.width+i]) {
			return errors.New("a transition to a type that is missing")
		}
		if i > 0 && b.transitionTime(data, i) <= b.transitionTime(data, i-1) {
			return errors.New("transitions out of order")
		}
	}
	types := data[b.times*(b.width+1):]
	for i := range b.types {
		if offset := int(int32(binary.BigEndian.Uint32(types[6*i:]))); !isOffset(offset) {
			return fmt.Errorf("an offset of %d seconds", offset)
		}
	}
	return nil
}

// transitionTime returns the time of a transition, in Unix seconds.
func (b tzifBlock) transitionTime(data []byte, i int) int64 {
	if b.width == 4 {
		return int64(int32(binary.BigEndian.Uint32(data[4*i:])))
	}
	return int64(binary.BigEndian.Uint64(data[8*i:]))
}

// isOffset reports whether RFC 9636 allows an offset of this number of seconds ahead of UTC.
func isOffset(seconds int) bool { return -25*3600 < seconds && seconds < 26*3600 }
