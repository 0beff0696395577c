package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/hungfs"
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
	eventually(t, time.Minute, "first look for changes", answers)
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
	eventually(t, time.Minute, "the mount's return", answers)
	if _, err := config.Load(path, config.Options{}); err != nil {
		t.Error(err)
	}
}
