//go:build linux || darwin

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cronclave/cronclave/internal/safefile"
)

// TestJudgedFiles checks that, as root, files that others could change are faults at their places, and that secrets that others may read are warnings.
func TestJudgedFiles(t *testing.T) {
	dir := openDir(t)
	t.Chdir(dir)
	for _, name := range []string{"password", "token", "job.env", "pg", "shared.env", "key.pem", "client"} {
		if err := os.WriteFile(name, []byte("A=1"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	chmod := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	chmod("password", 0o666)
	chmod("token", 0o644)
	chmod("key.pem", 0o604)
	chmod("client", 0o604)
	chmod("job.env", 0o620)
	chmod("pg", 0o644)
	const text = `[redis]
url = "rediss://h"
password_file = "password"
tls = { cert_file = "absent.pem", key_file = "key.pem" }
[server]
listen = "127.0.0.1:0"
token_file = "token"
oidc = { issuer = "https://id", client_id = "a", client_secret_file = "client", redirect_url = "https://cron/login/oidc/callback", viewers = ["a"] }
[defaults]
schedule = "@daily"
command = "true"
env_file = "shared.env"
[jobs.a]
env_file = "job.env"
env_from_file = { PGPASSWORD = "pg" }
[jobs.b]
user = "daemon"
inherit_env = false
`
	rights := func(user, group string) (*safefile.Identity, error) { return &safefile.Identity{UID: 1, GID: 1}, nil }
	c, err := loadConfig(t, text, Options{Env: environment()})
	if err != nil || len(c.Warnings) > 0 {
		t.Errorf("not judged: %v, %v", err, c)
	}
	_, err = loadConfig(t, text, Options{Env: environment(), Trust: safefile.Administrators, Rights: rights})
	if os.Geteuid() != 0 {
		return // on other systems the owner of a file is not judged: TestTrust of safefile
	}
	compareFaults(t, err, []string{
		"jobs.toml:3:17: password can be written by the group 0 and others: refused, because cronclave runs as root; run: chmod go-w password",
		"jobs.toml:4:46: warning: key.pem can be read by others; run: chmod go-r key.pem",
		"jobs.toml:7:14: warning: token can be read by others; run: chmod go-r token",
		"jobs.toml:8:71: warning: client can be read by others; run: chmod go-r client",
		"jobs.toml:12:12: warning: shared.env cannot be read by the user daemon: permission denied",
		"jobs.toml:14:12: job.env can be written by the group 0: refused, because cronclave runs as root; run: chmod go-w job.env",
		"jobs.toml:15:32: warning: pg can be read by others; run: chmod go-r pg",
	})
}

// TestUntrustedConfiguration checks that, as root, no configuration file of another user is read, and no folder of another user is searched.
func TestUntrustedConfiguration(t *testing.T) {
	t.Chdir(openDir(t))
	for _, f := range []string{"jobs.d", "open.d", "shared.d"} {
		if err := os.Mkdir(f, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"jobs.d/good.toml": 0o644, "jobs.d/group.toml": 0o664, "jobs.d/theirs.toml": 0o644} {
		if err := os.WriteFile(name, []byte("nothing = 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod("open.d", 0o777), os.Chmod("shared.d", 0o777|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown("jobs.d/theirs.toml", 4001, -1); err != nil {
		t.Fatal(err)
	}
	_, err := loadConfig(t, "include = ['jobs.d/*.toml', 'open.d/*.toml', 'shared.d/*.toml']\n", Options{Trust: safefile.Administrators})
	compareFaults(t, err, []string{
		"jobs.toml:1:12: jobs.d/group.toml can be written by the group 0: refused, because cronclave runs as root; run: chmod go-w jobs.d/group.toml",
		"jobs.toml:1:12: jobs.d/theirs.toml belongs to the user 4001: refused, because cronclave runs as root; run: chown root jobs.d/theirs.toml",
		"jobs.toml:1:29: DIR/open.d can be written by the group 0 and others: refused, because cronclave runs as root; run: chmod go-w DIR/open.d",
		"jobs.toml:1:46: DIR/shared.d lets other users add files: refused, because cronclave runs as root; move the files to a folder that only root can write to",
		`jobs.d/good.toml:1:1: unknown key "nothing" at the top level; did you mean "notify"?`,
	})
}

// TestOddFiles checks that an irregular or too long file is a fault at its place, and that Load does not wait for it.
func TestOddFiles(t *testing.T) {
	dir := openDir(t)
	t.Chdir(dir)
	if err := os.Mkdir("jobs.d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo("jobs.d/a-pipe.toml", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("jobs.d/d-long.toml", make([]byte, maxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"b-to-pipe.toml": "a-pipe.toml", "c-to-zero.toml": "/dev/zero", "e-to-nothing.toml": "nothing", "f-to-itself.toml": "f-to-itself.toml"} {
		if err := os.Symlink(to, "jobs.d/"+link); err != nil {
			t.Fatal(err)
		}
	}
	_, err := loadConfig(t, "include = ['jobs.d/*.toml']\n", Options{})
	compareFaults(t, err, []string{
		"jobs.toml:1:12: jobs.d/a-pipe.toml cannot be read: not a regular file",
		"jobs.toml:1:12: jobs.d/c-to-zero.toml cannot be read: not a regular file",
		"jobs.toml:1:12: jobs.d/d-long.toml cannot be read: longer than 4 MiB",
		"jobs.toml:1:12: jobs.d/e-to-nothing.toml cannot be read: no such file or directory",
		"jobs.toml:1:12: jobs.d/f-to-itself.toml cannot be read: too many levels of symbolic links",
	})
}

func compareFaults(t *testing.T, err error, want []string) {
	t.Helper()
	if err == nil {
		t.Fatal("no fault at all")
	}
	dir, _ := os.Getwd()
	got := strings.Split(err.Error(), "\n")
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = strings.ReplaceAll(want[i], "DIR", dir)
		}
		if g != w {
			t.Errorf("found %s\nwant  %s", g, w)
		}
	}
}

// openDir returns a temporary folder that every user may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
