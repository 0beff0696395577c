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

// MachineVersion returns the version of the zone data in a folder, or "" if there is none or if it states no version.
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

// Local returns the machine's own zone. It follows the rules of zones if the machine's zone has a name that zones know, so that displayed times agree
// with the ticks. Otherwise it follows the rules of the machine.
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

// nameInFolder returns the name of a zone in a zone folder, for example Europe/Berlin for /usr/share/zoneinfo/posix/Europe/Berlin. A name without a
// folder stays unchanged.
func nameInFolder(path string) string {
	if _, name, found := strings.Cut(path, "zoneinfo/"); found {
		return strings.TrimPrefix(strings.TrimPrefix(name, "posix/"), "right/")
	}
	return path
}
