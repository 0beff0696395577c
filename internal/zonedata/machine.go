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

// MachineVersion returns the version of this machine's zone data in a folder, or "" if it has none, or none that states a version.
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

// Local returns the machine's own zone, by the rules of zones if its name can be found there: the clock that people read must go by the same rules as the
// ticks. A zone without a name that zones has is by the machine's data.
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

// nameInFolder returns the name of a zone in a zone folder: Europe/Berlin of /usr/share/zoneinfo/posix/Europe/Berlin. A name without a folder stays.
func nameInFolder(path string) string {
	if _, name, found := strings.Cut(path, "zoneinfo/"); found {
		return strings.TrimPrefix(strings.TrimPrefix(name, "posix/"), "right/")
	}
	return path
}
