// Command mkzones writes the archive of time zones that package cronspec embeds.
//
//	mkzones FOLDER ARCHIVE
//
// FOLDER contains compiled zones (TZif files) under their names, like /usr/share/zoneinfo. Its file +VERSION, or the first line of its file tzdata.zi, has
// the version. The archive depends only on names and contents, so the same data gives the same bytes.
package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mkzones:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: mkzones FOLDER ARCHIVE")
	}
	archive, err := packArchive(args[0])
	if err != nil {
		return err
	}
	return os.WriteFile(args[1], archive, 0o644) //nolint:wrapcheck // the error names the file
}

// packArchive returns a zip archive of the zones in a folder. The file +VERSION in it has their version.
func packArchive(folder string) ([]byte, error) {
	version, err := readVersion(folder)
	if err != nil {
		return nil, err
	}
	files, err := readZones(folder)
	if err != nil {
		return nil, err
	}
	files["+VERSION"] = []byte(version + "\n")
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, name := range sortedNames(files) {
		// A header without modification time keeps the archive reproducible.
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		if err != nil {
			return nil, fmt.Errorf("add %s: %w", name, err)
		}
		if _, err := f.Write(files[name]); err != nil {
			return nil, fmt.Errorf("add %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end the archive: %w", err)
	}
	return archive.Bytes(), nil
}

func sortedNames(files map[string][]byte) []string {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

var versionPattern = regexp.MustCompile(`^[0-9]{4}[a-z]{1,2}$`)

func readVersion(folder string) (string, error) {
	text, err := os.ReadFile(filepath.Join(folder, "+VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(folder, "tzdata.zi"))
	}
	if err != nil {
		return "", fmt.Errorf("find the version: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	version := strings.TrimSpace(strings.TrimPrefix(line, "# version "))
	if !versionPattern.MatchString(version) {
		return "", fmt.Errorf("find the version: %s states %q", folder, line)
	}
	return version, nil
}

// notPlaces are entries of a zone folder that are no places: they depend on the machine, or repeat all zones in another form.
var notPlaces = []string{"localtime", "posixrules", "posix", "right"}

func readZones(folder string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		switch {
		case err != nil:
			return err //nolint:wrapcheck // the caller names the operation
		case slices.Contains(notPlaces, name) && entry.IsDir():
			return fs.SkipDir
		case slices.Contains(notPlaces, name) || entry.IsDir():
			return nil
		}
		data, err := os.ReadFile(path)
		if err == nil && bytes.HasPrefix(data, []byte("TZif")) {
			files[filepath.ToSlash(name)] = data
		}
		return err //nolint:wrapcheck // the caller names the operation
	})
	if err != nil {
		return nil, fmt.Errorf("read zones: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read zones: no compiled zone in %s", folder)
	}
	return files, nil
}
