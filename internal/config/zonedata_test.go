package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const oldZones = "../zonedata/testdata/2025c.zip"

// loadWith writes a configuration, and loads it.
func loadWith(t *testing.T, text string, o Options) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path, o)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

const vancouver = "[jobs.v]\nschedule = \"0 9 * * *\"\ntimezone = \"America/Vancouver\"\ncommand = [\"/bin/true\"]\n"

func TestZoneDataReplacesTheBuiltInData(t *testing.T) {
	old := "zone_data = '" + absolute(t, oldZones) + "'\n"
	noon := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	digests := map[string]bool{}
	for text, want := range map[string]string{vancouver: "2026f 16:00", old + vancouver: "2025c 17:00", "timezone = 'Cuba'\n" + old + "[defaults]\ntimezone = 'America/Vancouver'\n" + vancouver: "2025c 17:00"} {
		c, err := loadWith(t, text, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Zones.Version() + " " + c.Jobs[0].Spec.Next(noon).Format("15:04"); got != want {
			t.Errorf("%s\n09:00 in Vancouver by %s, want %s", text, got, want)
		}
		digests[c.Digest()] = true
	}
	if len(digests) != 1 {
		t.Errorf("the digest depends on the zone data, which is the affair of a replica: %v", digests)
	}
}

func TestZoneDataFaultsHaveTheirPlace(t *testing.T) {
	folder := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"no version":      {"zone_data = '" + folder + "'\n" + vancouver, ":1:13: zone_data cannot be used: " + folder + " states no version: write it, such as \"2026f\", to " + folder + "/+VERSION"},
		"not there":       {"zone_data = '" + folder + "/none'\n" + vancouver, ":1:13: zone_data cannot be used: "},
		"a missing zone":  {"zone_data = '" + absolute(t, oldZones) + "'\ntimezone = 'Pacific/Tongatapu'\n" + vancouver, "not a time zone in the zone data 2025c"},
		"twice in a file": {"include = ['more.toml']\nzone_data = 7\n" + vancouver, "a path in a string"},
	} {
		_, err := loadWith(t, c.text, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	_, err := loadWith(t, "zone_data = '"+folder+"/none'\n[jobs.v]\nschedule = '99 * * * *'\ncommand = ['/bin/true']\n", Options{})
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 2 {
		t.Errorf("of zone data and a schedule that are both faulty: %v", err)
	}
	c, err := loadWith(t, "zone_data = '"+folder+"/none'\n"+vancouver, Options{KeepUnset: true})
	if err != nil || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].Message, "not on this machine") {
		t.Errorf("for another machine: %v, %v", c, err)
	}
}

func TestNewerZonesOfTheMachineAreAWarning(t *testing.T) {
	machine := func(version string) Options {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "tzdata.zi"), []byte("# version "+version+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return Options{Machine: true, SystemZones: folder}
	}
	inUTC := "[jobs.u]\nschedule = '0 9 * * *'\ncommand = ['/bin/true']\n"
	for name, c := range map[string]struct {
		text  string
		o     Options
		warns bool
	}{
		"newer":                {vancouver, machine("2027a"), true},
		"the same":             {vancouver, machine("2026f"), false},
		"older":                {vancouver, machine("2025b"), false},
		"newer than zone_data": {"zone_data = '" + absolute(t, oldZones) + "'\n" + vancouver, machine("2026a"), true},
		"no version":           {vancouver, Options{Machine: true, SystemZones: t.TempDir()}, false},
		"no zone but UTC":      {inUTC, machine("2027a"), false},
		"of a running replica": {vancouver, Options{SystemZones: machine("2027a").SystemZones}, false},
	} {
		cfg, err := loadWith(t, c.text, c.o)
		if err != nil {
			t.Fatal(err)
		}
		want := `set zone_data = "` + c.o.SystemZones + `"`
		if warned := strings.Contains(cfg.Warnings.Error(), want); warned != c.warns {
			t.Errorf("%s: %v", name, cfg.Warnings)
		}
	}
}
