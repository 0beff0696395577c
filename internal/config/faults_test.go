package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is found into testdata as what is wanted")

// write unpacks an archive, whose files begin with a line `-- NAME --`, to a folder. want is the text after `-- want --`.
func write(t *testing.T, folder, archive string) (files, want string) {
	t.Helper()
	files, want, _ = strings.Cut(archive, "-- want --\n")
	_, rest, _ := strings.Cut(files, "-- ")
	for _, part := range strings.Split(rest, "\n-- ") {
		name, text, found := strings.Cut(part, " --\n")
		if !found {
			t.Fatalf("no file name in %q", part)
		}
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files, want
}

// environment returns a lookup function for NAME=VALUE pairs.
func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, pair := range pairs {
			if n, value, _ := strings.Cut(pair, "="); n == name {
				return value, true
			}
		}
		return "", false
	}
}

// TestFaults loads the archives in testdata/faults and compares their faults with the text after `-- want --`.
// `go test -run TestFaults -update` writes that text; review the difference.
// Promise: P8
func TestFaults(t *testing.T) {
	archives, err := filepath.Glob("testdata/faults/*.txt")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, archive := range archives {
		archive, err := filepath.Abs(archive)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(archive), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(archive)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			files, want := write(t, ".", string(text))
			_, err = Load("jobs.toml", Options{Env: environment("SECRET=s3cr3t")})
			if err == nil {
				t.Fatal("no fault at all")
			}
			got := err.Error() + "\n"
			if strings.Contains(got, "s3cr3t") || strings.Contains(got, "hunter2") {
				t.Errorf("a secret is told:\n%s", got)
			}
			if *update {
				if err := os.WriteFile(archive, []byte(files+"-- want --\n"+got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("found\n%s\nwant\n%s", got, want)
			}
		})
	}
}
