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
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/internal/zonedata"
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
	files, version, err := zonedata.ReadFiles(context.Background(), folder, safefile.Everybody)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the folder
	}
	files["+VERSION"] = []byte(version + "\n")
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, name := range slices.Sorted(maps.Keys(files)) {
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
