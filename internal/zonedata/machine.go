package zonedata

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// MachineVersion returns the version of the zone data in a folder. It returns "" if there is no zone data or if the data does not state a version.
func MachineVersion(ctx context.Context, folder string) string {
	ctx, cancel := context.WithTimeout(ctx, ReadTimeout)
	defer cancel()
	files := map[string][]byte{}
	for _, name := range []string{versionFile, sourceFile} {
		if data, err := safefile.Read(ctx, filepath.Join(folder, name), safefile.Policy{MaxBytes: maxFile}); err == nil {
			files[name] = data
		}
	}
	version, err := versionOf(folder, files)
	if err != nil {
		return ""
	}
	return version
}

// Local returns the machine's own time zone. If zones contains a zone with the same name, Local returns that zone, so that displayed times agree with the
// ticks. Otherwise it returns time.Local.
func Local(zones *cronspec.Zones) *time.Location {
	name, set := os.LookupEnv("TZ")
	switch {
	case !set:
		name, _ = os.Readlink("/etc/localtime")
		if !strings.Contains(name, "zoneinfo/") {
			return time.Local
		}
	case name == "" || name == "UTC":
		return time.UTC
	}
	if zone, err := zones.Location(nameInFolder(strings.TrimPrefix(name, ":"))); err == nil {
		return zone
	}
	return time.Local
}

// nameInFolder returns the name of a zone, given the path of its file: Europe/Berlin for /usr/share/zoneinfo/posix/Europe/Berlin. It returns a name without a
// folder unchanged.
func nameInFolder(path string) string {
	if _, name, found := strings.Cut(path, "zoneinfo/"); found {
		return strings.TrimPrefix(strings.TrimPrefix(name, "posix/"), "right/")
	}
	return path
}
