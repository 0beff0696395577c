// Package zonedata reads time zones that replace the built-in ones. It reads them from a folder such as /usr/share/zoneinfo, or from a zip archive of such a
// folder. It reads and checks all zones at once, so that all zones have the same version.
package zonedata

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

const (
	// SystemFolder is the folder of the machine's own time zones.
	SystemFolder = "/usr/share/zoneinfo"
	// ReadTimeout is the time limit for reading zone data, which may be on a hanging mount.
	ReadTimeout = 5 * time.Second

	// Limits of zone data. The IANA database has about 600 zones, and its largest file is tzdata.zi with 110 KiB.
	maxFiles, maxDepth = 4000, 4
	maxFile, maxTotal  = 1 << 20, 16 << 20
	maxArchive         = 8 << 20
)

// The files that state the version. +VERSION contains only the version. tzdata.zi, the source of the zones, has the version in its first line.
const (
	versionFile   = "+VERSION"
	sourceFile    = "tzdata.zi"
	sourceVersion = "# version "
)

// notZones lists the files and folders of a zone folder that are skipped, because they depend on the machine or repeat all zones in another form.
var notZones = []string{"localtime", "posixrules", "posix", "right"}

// versionPattern matches the versions of releases, such as "2026f", and of builds between two releases, such as "2026f-12-g1a2b3c4".
var versionPattern = regexp.MustCompile(`^[0-9]{4}[a-z]{1,2}(-[A-Za-z0-9.-]{1,40})?$`)

// ErrNoVersion reports that zone data does not state its version.
var ErrNoVersion = errors.New("no version")

// Read reads the zones in a folder or a zip archive. trust restricts who may own and change the files.
func Read(ctx context.Context, path string, trust safefile.Trust) (*cronspec.Zones, error) {
	files, version, err := ReadFiles(ctx, path, trust)
	if err != nil {
		return nil, err
	}
	zones, err := cronspec.NewZones(version, files)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return zones, nil
}

// ReadFiles returns the compiled zones in a folder or a zip archive, by name, and their version. It does not check the content of the zones.
func ReadFiles(ctx context.Context, path string, trust safefile.Trust) (files map[string][]byte, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, ReadTimeout)
	defer cancel()
	if files, err = readFolder(ctx, path, trust); errors.Is(err, syscall.ENOTDIR) {
		files, err = readArchive(ctx, path, trust)
	}
	if err != nil {
		return nil, "", err
	}
	if version, err = versionOf(path, files); err != nil {
		return nil, "", err
	}
	maps.DeleteFunc(files, func(_ string, data []byte) bool { return !bytes.HasPrefix(data, []byte("TZif")) })
	if len(files) == 0 {
		return nil, "", fmt.Errorf("%s has no compiled zones (TZif files)", path)
	}
	return files, version, nil
}

// readFolder reads a folder twice. A difference shows that the folder is being updated, because an update replaces the files one by one.
func readFolder(ctx context.Context, path string, trust safefile.Trust) (map[string][]byte, error) {
	policy := safefile.FolderPolicy{Policy: safefile.Policy{MaxBytes: maxFile, Trust: trust}, MaxFiles: maxFiles, MaxDepth: maxDepth, MaxTotal: maxTotal, Skip: notZones}
	files, err := safefile.ReadFolder(ctx, path, policy)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the file
	}
	again, err := safefile.ReadFolder(ctx, path, policy)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the file
	}
	if !maps.EqualFunc(files, again, bytes.Equal) {
		return nil, fmt.Errorf("%s has changed while it was read; try again", path)
	}
	return files, nil
}

func readArchive(ctx context.Context, path string, trust safefile.Trust) (map[string][]byte, error) {
	data, err := safefile.Read(ctx, path, safefile.Policy{MaxBytes: maxArchive, Trust: trust})
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the file
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("%s is neither a folder nor a zip archive: %w", path, err)
	}
	if len(archive.File) > maxFiles {
		return nil, fmt.Errorf("%s: more than %d files", path, maxFiles)
	}
	files, left := map[string][]byte{}, int64(maxTotal)
	for _, f := range archive.File {
		name := strings.TrimSuffix(f.Name, "/")
		first, _, _ := strings.Cut(name, "/")
		switch _, again := files[name]; {
		case !fs.ValidPath(name) || strings.Contains(name, `\`):
			return nil, fmt.Errorf("%s: the name %.80q is no path below a folder", path, f.Name)
		case again:
			return nil, fmt.Errorf("%s has %q twice", path, name)
		case strings.HasSuffix(f.Name, "/"), slices.Contains(notZones, first):
			continue
		}
		if files[name], err = unpackFile(f, min(left, maxFile)); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, name, err)
		}
		left -= int64(len(files[name]))
	}
	return files, nil
}

// unpackFile returns the content of a file in an archive. It refuses more than most bytes, and does not rely on the length in the file's header.
func unpackFile(f *zip.File, most int64) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the file
	}
	defer func() { _ = r.Close() }() // a failed Close loses nothing, because the file was only read
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = errors.New("too long")
	}
	return data, err //nolint:wrapcheck // the caller names the file
}

func versionOf(path string, files map[string][]byte) (string, error) {
	text, stated := files[versionFile]
	version, prefix := firstLine(text), ""
	if !stated {
		if text, stated = files[sourceFile]; stated {
			version, prefix = firstLine(text), sourceVersion
		}
	}
	version, found := strings.CutPrefix(version, prefix)
	if version = strings.TrimSpace(version); !stated || !found || !versionPattern.MatchString(version) {
		return "", fmt.Errorf("%s states %w: write it, such as \"2026f\", to %s, or add the %s of its release", path, ErrNoVersion, filepath.Join(path, versionFile), sourceFile)
	}
	return version, nil
}

func firstLine(text []byte) string {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	const longest = 100
	return string(line[:min(len(line), longest)])
}

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
