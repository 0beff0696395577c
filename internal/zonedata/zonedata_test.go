package zonedata

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// old has 19 zones of the version 2025c.
const old = "testdata/2025c.zip"

// unpacked writes the files of the old archive, and more, to a folder; a text of "-" removes a file.
func unpacked(t *testing.T, more map[string]string) string {
	t.Helper()
	archive, err := zip.OpenReader(old)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	folder := t.TempDir()
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, f.Name), data)
	}
	for name, text := range more {
		if text == "-" {
			if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		write(t, filepath.Join(folder, name), []byte(text))
	}
	return folder
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// archive writes a zip archive, of names and texts in turn.
func archive(t *testing.T, pairs ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(pairs); i += 2 {
		f, err := w.Create(pairs[i])
		if err == nil {
			_, err = io.WriteString(f, pairs[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "zones.zip")
	write(t, path, b.Bytes())
	return path
}

func TestReadTakesFoldersAndArchives(t *testing.T) {
	linked := unpacked(t, map[string]string{"..data/Etc/Ulm": "-"})
	for _, move := range []string{"Europe", "Cuba"} { // as Kubernetes mounts a ConfigMap
		if err := os.MkdirAll(linked+"/..data", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(linked+"/"+move, linked+"/..data/"+move); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("..data/"+move, linked+"/"+move); err != nil {
			t.Fatal(err)
		}
	}
	for name, path := range map[string]string{
		"archive": old,
		"folder":  unpacked(t, nil),
		"folder as Debian has it": unpacked(t, map[string]string{
			"+VERSION": "-", "tzdata.zi": "# version 2025c\n# redo\n", "zone.tab": "# no zone", "localtime": "TZif, of this machine", "right/Cuba": "TZif, with leap seconds",
		}),
		"folder of links": linked,
	} {
		zones, err := Read(t.Context(), path, safefile.Everybody)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		havana, err := zones.Location("America/Havana")
		if len(zones.Names()) != 19 || zones.Version() != "2025c" || err != nil {
			t.Fatalf("%s: version %q, %d zones, %v", name, zones.Version(), len(zones.Names()), err)
		}
		if got := time.Date(2026, 11, 27, 14, 0, 0, 0, time.UTC).In(havana).Format("15:04"); got != "09:00" {
			t.Errorf("%s: 14:00Z is %s in Havana, want 09:00 by the old law", name, got)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	good, err := os.ReadFile(unpacked(t, nil) + "/Cuba")
	if err != nil {
		t.Fatal(err)
	}
	fifo := unpacked(t, nil)
	if err := unix.Mkfifo(fifo+"/Asia/Pipe", 0o644); err != nil {
		t.Fatal(err)
	}
	loop := unpacked(t, nil)
	if err := os.Symlink(".", loop+"/Asia/Loop"); err != nil {
		t.Fatal(err)
	}
	many := map[string]string{}
	for i := range maxFiles {
		many[filepath.Join("Etc", strings.Repeat("x", 1+i%50)+time.Duration(i).String())] = ""
	}
	for name, c := range map[string]struct{ path, want string }{
		"nothing":                      {filepath.Join(t.TempDir(), "none"), "no such file"},
		"no version":                   {unpacked(t, map[string]string{"+VERSION": "-"}), "states no version"},
		"a version of no release":      {unpacked(t, map[string]string{"+VERSION": "newest\n"}), "states no version"},
		"an archive without a version": {archive(t, "Cuba", string(good)), "states no version"},
		"no zones":                     {archive(t, "+VERSION", "2026f"), "no compiled zones"},
		"no archive":                   {"zonedata.go", "neither a folder nor a zip archive"},
		"a zone that is cut off":       {unpacked(t, map[string]string{"Asia/Tokyo": string(good[:99])}), `zone "Asia/Tokyo"`},
		"a name upwards":               {archive(t, "+VERSION", "2026f", "../Cuba", string(good)), "no path below a folder"},
		"an absolute name":             {archive(t, "+VERSION", "2026f", "/Cuba", string(good)), "no path below a folder"},
		"a name of Windows":            {archive(t, "+VERSION", "2026f", `a\Cuba`, string(good)), "no path below a folder"},
		"a name twice":                 {archive(t, "+VERSION", "2026f", "Cuba", string(good), "Cuba", string(good)), "twice"},
		"an archive that grows":        {archive(t, "+VERSION", "2026f", "Cuba", strings.Repeat("x", maxFile+1)), "too long"},
		"a file that is too long":      {unpacked(t, map[string]string{"Big": strings.Repeat("x", maxFile+1)}), "longer than 1 MiB"},
		"too many files":               {unpacked(t, many), "more than 4000 files"},
		"folders without end":          {unpacked(t, map[string]string{"a/b/c/d/e/f": "x"}), "more than 4 folders deep"},
		"a loop of links":              {loop, "more than 4 folders deep"},
		"a pipe without a writer":      {fifo, "not a regular file"},
	} {
		zones, err := Read(t.Context(), c.path, safefile.Everybody)
		if zones != nil || err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), filepath.Base(c.path)) {
			t.Errorf("%s: %v; want an error about the path with %q", name, err, c.want)
		}
	}
	if _, err := Read(t.Context(), unpacked(t, map[string]string{"+VERSION": "-"}), safefile.Everybody); !errors.Is(err, ErrNoVersion) {
		t.Errorf("no version: %v", err)
	}
}

func TestMachineVersion(t *testing.T) {
	for want, folder := range map[string]string{
		"2025c": unpacked(t, nil),
		"2026f": unpacked(t, map[string]string{"+VERSION": "-", "tzdata.zi": "# version 2026f\n"}),
		"":      unpacked(t, map[string]string{"+VERSION": "-"}),
	} {
		if got := MachineVersion(t.Context(), folder); got != want {
			t.Errorf("version %q, want %q", got, want)
		}
	}
}

// The machine's own zone is by the rules of the ticks, wherever the machine has its name from.
func TestLocalIsByTheZonesInUse(t *testing.T) {
	zones, err := Read(t.Context(), old, safefile.Everybody)
	if err != nil {
		t.Fatal(err)
	}
	havana, _ := zones.Location("America/Havana")
	for tz, want := range map[string]*time.Location{
		"America/Havana": havana, ":America/Havana": havana, "/usr/share/zoneinfo/America/Havana": havana, ":/usr/share/zoneinfo/posix/America/Havana": havana,
		"": time.UTC, "UTC": time.UTC, "CET-1": time.Local, "Africa/Cairo": time.Local,
	} {
		t.Setenv("TZ", tz)
		if got := Local(zones); got != want {
			t.Errorf("TZ=%s: %v, want %v", tz, got, want)
		}
	}
	builtIn, err := cronspec.LoadLocation("America/Havana")
	t.Setenv("TZ", "America/Havana")
	if got := Local(nil); err != nil || got != builtIn {
		t.Errorf("without other data: %v, %v", got, err)
	}
}
