package cronspec

import (
	"archive/zip"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// falseZones marks the process in which package time sees falsified zone files: it looks at ZONEINFO only once.
const falseZones = "CRONSPEC_TEST_FALSE_ZONES"

// A zone is the same on every machine, whatever zone files the machine has. The
// test runs itself again where the machine's New York keeps Tokyo's time.
// Promise: P1
func TestZonesAreTheSameOnEveryMachine(t *testing.T) {
	if os.Getenv(falseZones) != "" {
		checkNewYork(t)
		return
	}
	folder := t.TempDir()
	tokyo := builtInFiles(t)["Asia/Tokyo"]
	if err := os.Mkdir(filepath.Join(folder, "America"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"America/New_York", "Nowhere"} {
		if err := os.WriteFile(filepath.Join(folder, name), tokyo, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestZonesAreTheSameOnEveryMachine$")
	cmd.Env = append(os.Environ(), falseZones+"=1", "ZONEINFO="+folder)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("with other zone files: %v\n%s", err, out)
	}
}

// checkNewYork checks that New York's clock is New York's, in a process with
// falsified zone files.
func checkNewYork(t *testing.T) {
	for _, name := range []string{"America/New_York", "Nowhere"} {
		lie, err := time.LoadLocation(name)
		if err != nil || date(2026, 1, 1).In(lie).Hour() != 9 {
			t.Fatalf("the machine's %s is %v, %v; this test needs it to be Tokyo", name, lie, err)
		}
	}
	s := mustParse(t, "America/New_York", "30 2 * * *")
	want := []time.Time{ // winter, the hour that is skipped, summer
		time.Date(2026, 3, 7, 7, 30, 0, 0, time.UTC), time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC), time.Date(2026, 3, 9, 6, 30, 0, 0, time.UTC),
	}
	at := date(2026, 3, 7)
	for _, tick := range want {
		if at = s.Next(at); at != tick {
			t.Errorf("tick %v, want %v", at, tick)
		}
	}
	if zone, err := LoadLocation("Nowhere"); err == nil {
		t.Errorf("a zone of the machine alone: %v", zone)
	}
}

// builtInFiles returns the compiled zones of the archive.
func builtInFiles(t *testing.T) map[string][]byte {
	t.Helper()
	archive, err := zip.NewReader(strings.NewReader(zoneArchive), int64(len(zoneArchive)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name != versionFile {
			files[f.Name] = data
		}
	}
	return files
}

// nineOClocks says when it is 09:00 on 2026-11-27, in UTC, in the zones whose offset the laws of 2026 changed.
var nineOClocks = map[string]string{
	"America/Vancouver": "16:00", "Canada/Pacific": "16:00",
	"America/Edmonton": "15:00", "America/Yellowknife": "15:00", "America/Inuvik": "15:00", "Canada/Mountain": "15:00",
	"America/Winnipeg": "14:00", "America/Rainy_River": "14:00", "Canada/Central": "14:00",
	"Africa/Casablanca": "09:00", "Africa/El_Aaiun": "09:00",
	"America/Havana": "13:00", "Cuba": "13:00",
}

// TestTicksFollowTheLawsOf2026 covers the 15 zones for which the data 2025c have ticks an hour off.
func TestTicksFollowTheLawsOf2026(t *testing.T) {
	for zone, want := range nineOClocks {
		tick := mustParse(t, zone, "0 9 * * *").Next(date(2026, 11, 27))
		if got := tick.Format("2006-01-02 15:04"); got != "2026-11-27 "+want {
			t.Errorf("09:00 in %s on 2026-11-27 is %sZ, want %sZ", zone, got, want)
		}
	}
	for _, zone := range []string{"Europe/Chisinau", "Europe/Tiraspol"} { // change at 01:00Z as the EU does, no longer at 00:00Z
		tick := mustParse(t, zone, "30 2 * * *").Next(date(2027, 3, 28))
		if want := time.Date(2027, 3, 28, 0, 30, 0, 0, time.UTC); tick != want {
			t.Errorf("02:30 in %s on the day of its change is %v, want %v", zone, tick, want)
		}
	}
}

// allZones are the built-in zones as they are, and as data from elsewhere is read.
func allZones(t *testing.T) map[string]*Zones {
	t.Helper()
	read, err := NewZones(BuiltIn().Version(), builtInFiles(t))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*Zones{"built in": openBuiltIn(), "read": read, "nil": nil}
}

func TestZonesKnowTheirNames(t *testing.T) {
	for kind, z := range allZones(t) {
		names := z.Names()
		if len(names) < 500 || !slices.IsSorted(names) || !slices.Contains(names, "Europe/Berlin") || !slices.Contains(names, "US/Pacific") {
			t.Fatalf("%s: %d names: %v", kind, len(names), names)
		}
		for _, name := range names {
			zone, err := z.Location(name)
			if err != nil || name != "UTC" && zone.String() != name {
				t.Errorf("%s: %q is %v, %v", kind, name, zone, err)
			}
		}
		for _, name := range []string{"", "UTC"} {
			if zone, err := z.Location(name); err != nil || zone != time.UTC {
				t.Errorf("%s: %q is %v, %v", kind, name, zone, err)
			}
		}
		if v := z.Version(); !regexp.MustCompile(`^20\d\d[a-z]$`).MatchString(v) || v < "2026f" {
			t.Errorf("%s: version %q", kind, v)
		}
	}
}

func TestZonesRefuseNames(t *testing.T) {
	for kind, z := range allZones(t) {
		for _, name := range []string{
			"Local", "Mars/Olympus", "europe/berlin", "Europe", "Europe/", ".", "..", "/", "/Europe/Berlin", "./Europe/Berlin",
			"Europe/../Europe/Berlin", "../zoneinfo/Europe/Berlin", `Europe\Berlin`, `\Europe\Berlin`, "Europe//Berlin", "Europe/Berlin\x00",
			"right/Europe/Berlin", "localtime", "posixrules", "\xff", versionFile,
		} {
			if zone, err := z.Location(name); zone != nil || err == nil {
				t.Errorf("%s: %q is %v, %v", kind, name, zone, err)
			}
		}
	}
}

func TestZonesAreShared(t *testing.T) {
	z := openBuiltIn()
	for _, name := range z.Names() {
		var zones [4]*time.Location
		var loading sync.WaitGroup
		start := make(chan struct{})
		for i := range zones {
			loading.Go(func() {
				<-start
				zones[i], _ = z.Location(name)
			})
		}
		close(start)
		loading.Wait()
		for _, zone := range zones {
			if zone == nil || zone != zones[0] {
				t.Errorf("%s is %p and %p", name, zones[0], zone)
			}
		}
	}
}

func TestNewZonesRefusesFaultyData(t *testing.T) {
	good := builtInFiles(t)["Europe/Berlin"]
	changed := func(change func([]byte)) []byte {
		data := slices.Clone(good)
		change(data)
		return data
	}
	second := tzifHeader + tzifSize(t, good)
	times := int(binary.BigEndian.Uint32(good[second+tzifCounts+12:]))
	for name, c := range map[string]struct {
		zone string
		data []byte
		want string
	}{
		"no zone":                {"Europe/Berlin", []byte("<html>"), "no TZif file"},
		"an empty file":          {"Europe/Berlin", nil, "no TZif file"},
		"a cut file":             {"Europe/Berlin", good[:second+tzifHeader+9], "cut off"},
		"a huge count":           {"Europe/Berlin", changed(func(d []byte) { d[second+tzifCounts+12] = 0x7f }), "a count of"},
		"leap seconds":           {"Europe/Berlin", changed(func(d []byte) { d[second+tzifCounts+11] = 1 }), "leap seconds"},
		"transitions backwards":  {"Europe/Berlin", changed(func(d []byte) { d[second+tzifHeader] = 0x7f }), "out of order"},
		"a type that is missing": {"Europe/Berlin", changed(func(d []byte) { d[second+tzifHeader+8*times] = 0xfe }), "a type that is missing"},
		"an offset of weeks":     {"Europe/Berlin", changed(func(d []byte) { d[second+tzifHeader+9*times+1] = 0x7f }), "an offset of"},
		"a path upwards":         {"../Berlin", good, "no path below a folder"},
		"an absolute path":       {"/Berlin", good, "no path below a folder"},
	} {
		z, err := NewZones("2026f", map[string][]byte{c.zone: c.data})
		if z != nil || err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.zone) {
			t.Errorf("%s: %v, %v; want an error with %q", name, z, err, c.want)
		}
	}
}

// tzifSize returns the length of the first block of a TZif file without its header.
func tzifSize(t *testing.T, data []byte) int {
	t.Helper()
	b, _, err := readTZifBlock(data, 4)
	if err != nil {
		t.Fatal(err)
	}
	return b.size()
}

func TestHashZoneIsThatOfTheClock(t *testing.T) {
	hash := func(name string, from, until time.Time) string {
		zone, err := LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		return HashZone(zone, from, until)
	}
	from, until := date(2026, 11, 1), date(2027, 12, 1)
	for _, same := range [][2]string{{"US/Pacific", "America/Los_Angeles"}, {"Europe/Berlin", "Europe/Paris"}, {"UTC", "Africa/Abidjan"}, {"America/Vancouver", "America/Phoenix"}} {
		if a, b := hash(same[0], from, until), hash(same[1], from, until); a != b {
			t.Errorf("%v: %s and %s", same, a, b)
		}
	}
	for _, other := range []string{"America/Los_Angeles", "America/Denver", "UTC"} {
		if a, b := hash("America/Vancouver", from, until), hash(other, from, until); a == b {
			t.Errorf("America/Vancouver and %s: %s", other, a)
		}
	}
	if a, b := hash("America/Phoenix", from, until), hash("America/Vancouver", date(2026, 11, 2), date(2027, 12, 1)); a == b {
		t.Errorf("hashes of different stretches are the same")
	}
}
