//go:build linux

package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/safefile"
)

// A file that the job's user could not read does not reach the job.
func TestFilesOfAJobAreItsUsers(t *testing.T) {
	asRoot(t)
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const uid = 4001
	write := func(name string, mode os.FileMode, owner int) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte("A=1"), mode); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chmod(name, mode), os.Chown(name, owner, owner)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	link := func(name, to string) string {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	secret := write("secret", 0o600, 0)
	for name, tt := range map[string]struct {
		file, says string // "" for a file that is read
	}{
		"own":                       {write("own", 0o400, uid), ""},
		"public":                    {write("public", 0o644, 0), ""},
		"root's":                    {secret, "as the user 4001: read " + secret + ": permission denied"},
		"link to root's":            {link("link", secret), "permission denied"},
		"link to passwords":         {link("shadow", "/etc/shadow"), "permission denied"},
		"written by others":         {write("open", 0o666, uid), "run: chmod go-w"},
		"of another user":           {write("other", 0o644, uid+1), "run: chown 4001 "},
		"link to an endless device": {link("zero", "/dev/zero"), "not a regular file"},
	} {
		for _, s := range []EnvSpec{{EnvFile: tt.file}, {EnvFromFile: map[string]string{"A": tt.file}}} {
			s.User, s.Group, s.Trust = "4001", "4001", safefile.Administrators
			_, err := Environment(t.Context(), s)
			if (tt.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v, want %q", name, err, tt.says)
			}
		}
	}
	if _, err := Environment(t.Context(), EnvSpec{EnvFile: secret, User: "root", Trust: safefile.Administrators}); err != nil {
		t.Errorf("root's own job: %v", err)
	}
}

// TestPipeInPlaceOfAnEnvFile: a run neither waits for it nor outlives its own context.
func TestPipeInPlaceOfAnEnvFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range []EnvSpec{{EnvFile: pipe}, {EnvFromFile: map[string]string{"A": pipe}}} {
		if _, err := Environment(t.Context(), s); !errors.Is(err, safefile.ErrNotRegular) {
			t.Errorf("%v", err)
		}
	}
	over := errors.New("the job's timeout has passed")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	if _, err := Environment(ctx, EnvSpec{EnvFile: file(t, "A=1")}); !errors.Is(err, over) {
		t.Errorf("after the run's time: %v", err)
	}
}
