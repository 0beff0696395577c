package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/hungfs"
	"github.com/cronclave/cronclave/internal/testtier"
)

// returnsWithin fails the test if a function does not return in time. A mount that hangs would hold it for ever.
func returnsWithin(t *testing.T, most time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(most):
		t.Fatalf("%s takes longer than %v", what, most)
	}
}

// TestCheckAsksADeadMountOnce: each job that needs a dead mount has its warning, at its place. The mount is asked once, so that time is left for files elsewhere.
func TestCheckAsksADeadMountOnce(t *testing.T) {
	t.Parallel()
	dead := hungfs.New(t, map[string]string{"env": "A=1\n", "program": "#!/bin/sh\n"})
	text := "[defaults]\nschedule = \"@daily\"\ncommand = \"true\"\n"
	const jobs = 20
	var want []string
	for n := range jobs {
		text += fmt.Sprintf("[jobs.j%02d]\ndir = '%s/dir-%d'\n", n, dead.Dir, n)
		want = append(want, fmt.Sprintf("%d %s/dir-%d not checked", 5+2*n, dead.Dir, n))
	}
	line := 4 + 2*jobs
	text += fmt.Sprintf("[jobs.k]\ncommand = ['%s/program']\nenv_file = '%s/env'\nenv_from_file = { B = '%s/env' }\n[jobs.l]\ndir = '/no/such/folder'\n", dead.Dir, dead.Dir, dead.Dir)
	want = append(want, fmt.Sprintf("%d %s/program not checked", line+1, dead.Dir), fmt.Sprintf("%d %s/env not checked", line+2, dead.Dir),
		fmt.Sprintf("%d %s/env not checked", line+3, dead.Dir), fmt.Sprintf("%d /no/such/folder is not on this machine", line+5))
	path := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dead.Answer)
	dead.Hang()
	returnsWithin(t, time.Minute, "check", func() {
		cfg, err := config.Load(path, config.Options{Machine: true})
		if err != nil {
			t.Error(err)
			return
		}
		var got []string
		for _, w := range cfg.Warnings {
			message, rest, _ := strings.Cut(w.Message, ":")
			got = append(got, fmt.Sprintf("%d %s", w.Line, message))
			for _, part := range []string{"its file system does not answer (mount " + dead.Dir + ", fuse hungfs)", "the job cannot start here until", "umount -l " + dead.Dir} {
				if strings.Contains(message, "not checked") && !strings.Contains(rest, part) {
					t.Errorf("%q does not say %q", w.Message, part)
				}
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if !cfg.Unchecked[dead.Dir+"/env"] || cfg.Unchecked["/no/such/folder"] {
			t.Errorf("unchecked: %v", cfg.Unchecked)
		}
	})
}

// TestConfigurationReadFromADeadMount: it counts as unchanged while its mount does not answer, and reading it anew is a fault that names the mount.
func TestConfigurationReadFromADeadMount(t *testing.T) {
	t.Parallel()
	dead := hungfs.New(t, map[string]string{"jobs.toml": "include = [\"more-*.toml\"]\n", "more-a.toml": "[jobs.a]\nschedule = \"@daily\"\ncommand = \"true\"\n"})
	path, files := dead.Dir+"/jobs.toml", &config.Files{}
	if _, err := config.Load(path, config.Options{Files: files}); err != nil {
		t.Fatal(err)
	}
	answers := func() bool { // a busy machine may take longer for an answer than Stamp waits
		now, err := files.Stamp()
		if err == nil && now != files.AsRead() {
			t.Errorf("changed from %q to %q", files.AsRead(), now)
		}
		return err == nil
	}
	harness.Eventually(t, time.Minute, "first look for changes", answers)
	t.Cleanup(dead.Answer)
	dead.Hang()
	returnsWithin(t, time.Minute, "the look for changes", func() {
		for range 3 {
			now, err := files.Stamp()
			if now != files.AsRead() || err == nil || !strings.Contains(err.Error(), "does not answer (mount "+dead.Dir) {
				t.Errorf("%v, changed from %q to %q", err, files.AsRead(), now)
			}
		}
	})
	returnsWithin(t, time.Minute, "a reload", func() {
		_, err := config.Load(path, config.Options{})
		if err == nil || !strings.Contains(err.Error(), "cannot be read: its file system does not answer (mount "+dead.Dir) {
			t.Errorf("read anew: %v", err)
		}
	})
	dead.Answer()
	harness.Eventually(t, time.Minute, "the mount's return", answers)
	if _, err := config.Load(path, config.Options{}); err != nil {
		t.Error(err)
	}
}

// TestRelativePathsOnADeadMount: names without a leading slash belong to the mount of the working directory, which is named and is asked once.
func TestRelativePathsOnADeadMount(t *testing.T) {
	dead := hungfs.New(t, map[string]string{"jobs.toml": "include = [\"a.toml\", \"b.toml\", \"more-*.toml\"]\n", "a.toml": "", "b.toml": ""})
	t.Chdir(dead.Dir)
	files := &config.Files{}
	if _, err := config.Load("jobs.toml", config.Options{Files: files}); err != nil {
		t.Fatal(err)
	}
	dead.Hang()
	defer dead.Answer()
	begun := time.Now()
	returnsWithin(t, time.Minute, "the look for changes", func() {
		if now, err := files.Stamp(); now != files.AsRead() || err == nil || !strings.Contains(err.Error(), "does not answer (mount "+dead.Dir) {
			t.Errorf("%v, changed from %q to %q", err, files.AsRead(), now)
		}
	})
	if took := time.Since(begun); took > 4*time.Second { // one second for the first file, and one for its links
		t.Errorf("four names on one mount took %v", took)
	}
	returnsWithin(t, time.Minute, "a reload", func() {
		_, err := config.Load("jobs.toml", config.Options{})
		if err == nil || !strings.Contains(err.Error(), "cannot be read: its file system does not answer (mount "+dead.Dir) {
			t.Errorf("read anew: %v", err)
		}
	})
}

// newTmpfs mounts a file system that answers, until the test ends.
func newTmpfs(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("healthy", dir, "tmpfs", 0, ""); err != nil {
		t.Fatalf("mount a tmpfs: %v; this test needs root", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// TestLinkToADeadMount: a symbolic link that leads from a mount that answers to one that does not is a matter of the latter alone.
func TestLinkToADeadMount(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	healthy, dead := newTmpfs(t), hungfs.New(t, map[string]string{"env": "A=1\n", "z.toml": ""})
	path := healthy + "/jobs.toml"
	writeFiles(t, map[string]string{
		path:                       "include = [\"jobs.d/*.toml\"]\n",
		healthy + "/plain":         "",
		healthy + "/jobs.d/a.toml": "",
		healthy + "/more.toml": fmt.Sprintf("[defaults]\nschedule = \"@daily\"\ncommand = \"true\"\n[jobs.a]\ndir = '%s/folder'\nenv_file = '%s/env'\n[jobs.b]\ndir = '%s/plain'\n",
			healthy, healthy, healthy),
	})
	for link, target := range map[string]string{"folder": dead.Dir + "/env", "env": "direct/env", "direct": dead.Dir, "jobs.d/z.toml": "../direct/z.toml"} {
		if err := os.Symlink(target, healthy+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	files := &config.Files{}
	if _, err := config.Load(path, config.Options{Files: files}); err != nil {
		t.Fatal(err)
	}
	dead.Hang()
	returnsWithin(t, time.Minute, "the look for changes", func() {
		if now, err := files.Stamp(); err == nil || now != files.AsRead() {
			t.Errorf("%v, changed from %q to %q", err, files.AsRead(), now)
		}
		writeFiles(t, map[string]string{healthy + "/jobs.d/a.toml": "# another\n"})
		if now, err := files.Stamp(); err == nil || now == files.AsRead() {
			t.Errorf("%v: a change beside the link is not noticed", err)
		}
	})
	returnsWithin(t, time.Minute, "check", func() {
		cfg, err := config.Load(healthy+"/more.toml", config.Options{Machine: true})
		if err != nil {
			t.Error(err)
			return
		}
		var got []string
		for _, w := range cfg.Warnings {
			got = append(got, w.Message)
		}
		const silent = "%s/%s not checked: its file system does not answer (mount %s, fuse hungfs); the job cannot start here until the mount answers; repair the mount, or detach it: umount -l %[3]s"
		want := []string{fmt.Sprintf(silent, healthy, "folder", dead.Dir), fmt.Sprintf(silent, healthy, "env", dead.Dir), healthy + "/plain is no folder: the job cannot start here"}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// writeFiles writes files with their texts, and makes their folders.
func writeFiles(t *testing.T, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCheckWithoutTimeLeft: a file that check did not come to, because two mounts took the time, has a warning too.
func TestCheckWithoutTimeLeft(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, key := range map[string]string{"program": "command = ['%s/file']", "env file": "command = 'true'\nenv_file = '%s/file'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "[defaults]\nschedule = \"@daily\"\n"
			var last string
			for n := range 3 {
				dead := hungfs.New(t, map[string]string{"file": "#!/bin/sh\n"})
				dead.HangOpen() // names are found, so that the file is asked for twice: first for its kind
				defer dead.Answer()
				text += fmt.Sprintf("[jobs.j%d]\n"+key+"\n", n, dead.Dir)
				last = dead.Dir + "/file"
			}
			path := filepath.Join(t.TempDir(), "jobs.toml")
			writeFiles(t, map[string]string{path: text})
			returnsWithin(t, time.Minute, "check", func() {
				cfg, err := config.Load(path, config.Options{Machine: true})
				if err != nil {
					t.Error(err)
					return
				}
				want := last + " not checked: the files of the configuration took longer than 5s to look at"
				if w := cfg.Warnings; len(w) != 3 || w[2].Message != want || !cfg.Unchecked[last] {
					t.Errorf("got %v, want 3 warnings, the last one %q", w, want)
				}
			})
		})
	}
}

// TestChangeBesideADeadFile: while one included file hangs, a change of another one is noticed, and reading it is refused for the file that hangs. Both are read
// once it answers.
func TestChangeBesideADeadFile(t *testing.T) {
	t.Parallel()
	dead := hungfs.New(t, map[string]string{"b.toml": ""})
	path := filepath.Join(t.TempDir(), "jobs.toml")
	include := "include = ['" + dead.Dir + "/b.toml']\n"
	writeFiles(t, map[string]string{path: include})
	files := &config.Files{}
	if _, err := config.Load(path, config.Options{Files: files}); err != nil {
		t.Fatal(err)
	}
	dead.Hang()
	writeFiles(t, map[string]string{path: include + "[jobs.new]\nschedule = \"@daily\"\ncommand = \"true\"\n"})
	refused := &config.Files{}
	returnsWithin(t, time.Minute, "a reload", func() {
		if now, err := files.Stamp(); err == nil || now == files.AsRead() {
			t.Errorf("the change is not noticed: %v", err)
		}
		_, err := config.Load(path, config.Options{Files: refused})
		if err == nil || !strings.Contains(err.Error(), dead.Dir+"/b.toml cannot be read: its file system does not answer") {
			t.Errorf("read anew: %v", err)
		}
	})
	dead.Answer()
	returnsWithin(t, time.Minute, "the mount's return", func() {
		harness.Eventually(t, 30*time.Second, "a change", func() bool {
			now, err := refused.Stamp()
			return err == nil && now != refused.AsRead()
		})
	})
	if cfg, err := config.Load(path, config.Options{}); err != nil || len(cfg.Jobs) != 1 {
		t.Errorf("once it answers: %v, %v", cfg, err)
	}
}
