package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/internal/safefile"
)

// writeAt writes a file with a given modification time.
func writeAt(t *testing.T, name, text string, at time.Time) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestFilesThatChange(t *testing.T) {
	const main = "include = [\"jobs.d/*.toml\", \"more/*/jobs.toml\", \"absent.toml\"]\n"
	old := time.Now().Add(-time.Hour)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name    string
		change  func(dir string)
		noticed bool
	}{
		{"nothing", func(string) {}, false},
		{"a file that no pattern is for", func(dir string) { writeAt(t, dir+"/jobs.d/a.toml.tmp", "", old.Add(time.Second)) }, false},
		{"a folder without what the pattern is for", func(dir string) { writeAt(t, dir+"/more/x/else.toml", "", old) }, false},
		{"written in place", func(dir string) { writeAt(t, dir+"/jobs.toml", main+"#", old) }, true},
		{"written later", func(dir string) { writeAt(t, dir+"/jobs.toml", main, old.Add(time.Second)) }, true},
		{"included one written", func(dir string) { writeAt(t, dir+"/jobs.d/a.toml", "# other", old) }, true},
		{"one added", func(dir string) { writeAt(t, dir+"/jobs.d/b.toml", "", old) }, true},
		{"one removed", func(dir string) { must(os.Remove(dir + "/jobs.d/a.toml")) }, true},
		{"the folder removed", func(dir string) { must(os.RemoveAll(dir + "/jobs.d")) }, true},
		{"a folder added", func(dir string) { writeAt(t, dir+"/more/x/jobs.toml", "", old) }, true},
		{"what was missing is there", func(dir string) { writeAt(t, dir+"/absent.toml", "", old) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			writeAt(t, dir+"/jobs.toml", main, old)
			writeAt(t, dir+"/jobs.d/a.toml", "", old)
			must(os.MkdirAll(dir+"/more", 0o755))
			for _, folder := range []string{"/jobs.d", "/more"} { // there are systems whose clock of files is coarse
				must(os.Chtimes(dir+folder, old, old))
			}
			var files Files
			if _, err := Load(dir+"/jobs.toml", Options{Files: &files}); err == nil {
				t.Fatal("a missing file is no fault")
			}
			tc.change(dir)
			now, err := files.Stamp()
			must(err)
			if (now != files.AsRead()) != tc.noticed {
				t.Errorf("as read:\n%s\nnow:\n%s", files.AsRead(), now)
			}
		})
	}
}

// TestFilesBehindSymbolicLinks checks folders as Kubernetes mounts them: links, whose targets are replaced all at once.
func TestFilesBehindSymbolicLinks(t *testing.T) {
	dir, old := t.TempDir(), time.Now().Add(-time.Hour)
	writeAt(t, dir+"/..1/jobs.toml", "# one", old)
	writeAt(t, dir+"/..2/jobs.toml", "# two", old)
	for link, to := range map[string]string{"/..data": "..1", "/jobs.toml": "..data/jobs.toml", "/..next": "..2"} {
		if err := os.Symlink(to, dir+link); err != nil {
			t.Fatal(err)
		}
	}
	var files Files
	if _, err := Load(dir+"/jobs.toml", Options{Files: &files}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"/..next", dir+"/..data"); err != nil {
		t.Fatal(err)
	}
	if now, err := files.Stamp(); err != nil || now == files.AsRead() {
		t.Errorf("not noticed: %s", now)
	}
}

// TestUnreadableFolderIsAFault checks that an unreadable folder does not count as empty. Otherwise a reload would remove its jobs.
func TestUnreadableFolderIsAFault(t *testing.T) {
	dir := t.TempDir()
	writeAt(t, dir+"/jobs.toml", "include = [\"jobs.d/*.toml\"]\n", time.Now())
	if _, err := Load(dir+"/jobs.toml", Options{}); err != nil {
		t.Fatal("a folder that is not there:", err)
	}
	if err := os.Symlink("jobs.d", dir+"/jobs.d"); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir+"/jobs.toml", Options{}); err == nil || !strings.Contains(err.Error(), "jobs.toml:1:12: "+dir+"/jobs.d cannot be read") {
		t.Error(err)
	}
}

// TestProbeWithoutTimeLeft checks that a path whose time was cut short does not mark its mount as silent.
func TestProbeWithoutTimeLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return safefile.ErrUnanswered
		}
		p := &mountProbe{perPath: 2 * time.Second, inAll: 5 * time.Second}
		for path, silent := range map[string]bool{"/no/a": true, "/no/b": true} {
			if err := p.probePath(path, hang); errors.Is(err, safefile.ErrUnanswered) != silent {
				t.Errorf("%s: %v", path, err)
			}
		}
		for range 2 {
			if err := p.probePath("/no/c", hang); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, safefile.ErrUnanswered) {
				t.Errorf("cut short: %v", err)
			}
		}
		if len(p.silent) != 2 || p.silent["/no/a"] == "" || p.silent["/no/b"] == "" {
			t.Errorf("silent: %v", p.silent)
		}
	})
}
