package cronspec

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	archive, err := zones()
	if err != nil {
		t.Fatal(err)
	}
	tokyo, err := fs.ReadFile(archive, "Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
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

func TestLoadLocationKnowsItsNames(t *testing.T) {
	names := ZoneNames()
	if len(names) < 500 || !slices.IsSorted(names) || !slices.Contains(names, "Europe/Berlin") {
		t.Fatalf("%d names: %v", len(names), names)
	}
	for _, name := range names {
		if zone, err := LoadLocation(name); err != nil || zone.String() != name {
			t.Errorf("%q is %v, %v", name, zone, err)
		}
	}
	for _, name := range []string{"", "UTC"} {
		if zone, err := LoadLocation(name); err != nil || zone != time.UTC {
			t.Errorf("%q is %v, %v", name, zone, err)
		}
	}
}

func TestLoadLocationRefuses(t *testing.T) {
	for _, name := range []string{
		"Local", "Mars/Olympus", "europe/berlin", "Europe", "Europe/", ".", "..", "/", "/Europe/Berlin", "./Europe/Berlin",
		"Europe/../Europe/Berlin", "../zoneinfo/Europe/Berlin", `Europe\Berlin`, `\Europe\Berlin`, "Europe//Berlin", "Europe/Berlin\x00",
		"right/Europe/Berlin", "localtime", "posixrules", "\xff",
	} {
		if zone, err := LoadLocation(name); zone != nil || err == nil {
			t.Errorf("%q is %v, %v", name, zone, err)
		}
	}
}

func TestLoadLocationIsShared(t *testing.T) {
	for _, name := range ZoneNames() {
		loaded.Clear()
		var zones [4]*time.Location
		var loading sync.WaitGroup
		start := make(chan struct{})
		for i := range zones {
			loading.Go(func() {
				<-start
				zones[i], _ = LoadLocation(name)
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

func TestZoneDataVersion(t *testing.T) {
	if v := ZoneDataVersion(); !regexp.MustCompile(`^20\d\d[a-z]$`).MatchString(v) {
		t.Errorf("version %q", v)
	}
}
