//go:build linux

package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// inDirectory is set for the test binary if it runs where a directory has accounts: see inNamespace.
const inDirectory = "COMMAND_TEST_DIRECTORY"

// inNamespace runs this test again, in a mount namespace in which nsswitch.conf names the service extrausers, with accounts of its own. Nothing of the machine
// changes. It returns whether this is that run.
func inNamespace(t *testing.T, getent string) bool {
	t.Helper()
	asRoot(t)
	if os.Getenv(inDirectory) != "" {
		return true
	}
	needExtrausers(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"nsswitch.conf": "passwd: files extrausers\ngroup: files extrausers\nshadow: files\nhosts: files\n",
		"passwd":        "dora:x:70001:70002:Dora:/home/dora:/bin/zsh\n",
		"group":         "dora:x:70002:\nstaffers:x:70003:dora,nobody\n",
		"shadow":        "",
		"getent":        getent,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil { //nolint:gosec // getent is executed
			t.Fatal(err)
		}
	}
	script := `mount --bind $0/nsswitch.conf /etc/nsswitch.conf && mount --bind $0 /var/lib/extrausers &&
		if [ -s $0/getent ]; then mount --bind $0/getent $(readlink -f /usr/bin/getent); fi && exec "$@"`
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", script, dir, "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.count=1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args[len(cmd.Args)-3] = self
	cmd.Env = append(os.Environ(), inDirectory+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// needExtrausers makes sure that the machine has a service of nsswitch.conf beside files.
func needExtrausers(t *testing.T) {
	t.Helper()
	there := func() bool {
		found, _ := filepath.Glob("/usr/lib*/libnss_extrausers.so.2")
		more, _ := filepath.Glob("/usr/lib/*/libnss_extrausers.so.2")
		return len(found)+len(more) > 0
	}
	if there() {
		return
	}
	var said []byte
	if os.Getenv("CRONCLAVE_TEST_INSTALL") == "1" {
		said, _ = exec.CommandContext(t.Context(), "apt-get", "install", "-y", "--no-install-recommends", "libnss-extrausers").CombinedOutput()
	}
	if !there() {
		t.Fatalf("install the package libnss-extrausers, or set CRONCLAVE_TEST_INSTALL=1 as root\n%s", said)
	}
}

// TestUserOfADirectory runs commands as users whom /etc/passwd does not have, and as one whom it has and of whom the directory has a group.
func TestUserOfADirectory(t *testing.T) {
	if !inNamespace(t, "") {
		return
	}
	var log strings.Builder
	h := newTestHost(t, false)
	h.log = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Debug})
	for _, tt := range []struct{ user, group, want string }{
		{"dora", "", "70001 70002 70002 70003\n"},
		{"70001", "", "70001 70002 70002 70003\n"},
		{"dora", "staffers", "70001 70003 70003\n"},
		{"nobody", "", "65534 65534 65534 70003\n"},
		{"", "staffers", "0 70003"},
	} {
		e := h.Run(t.Context(), t.Context(), Spec{
			Argv: []string{"/bin/sh", "-c", "echo $(id -u) $(id -g) $(id -G)"}, Env: []string{"PATH=/usr/bin:/bin"}, User: tt.user, Group: tt.group, Keep: 1000,
		})
		if !strings.HasPrefix(string(e.Tail), tt.want) || e.Code != 0 {
			t.Errorf("%s:%s: got %q, code %d (%v), want %q", tt.user, tt.group, e.Tail, e.Code, e.Err, tt.want)
		}
	}
	if !strings.Contains(log.String(), `account="uid 70001, gid 70002, groups 70002 70003, from getent passwd"`) {
		t.Errorf("the log does not name the source:\n%s", &log)
	}
	env, err := Environment(t.Context(), EnvSpec{User: "dora"})
	if want := "HOME=/home/dora LOGNAME=dora SHELL=/bin/zsh USER=dora"; err != nil || strings.Join(env, " ") != want {
		t.Errorf("environment %q (%v), want %q", env, err, want)
	}
	for name, look := range map[string]func() error{
		"user": func() error { _, err := lookupIdentity("nobody-here", ""); return err }, "group": func() error { _, err := lookupGroup("nobody-here"); return err },
	} {
		if err := look(); err == nil || !strings.Contains(err.Error(), "getent") || !strings.Contains(err.Error(), "no such "+name) {
			t.Errorf("an unknown %s: %v", name, err)
		}
	}
}

// TestDirectoryThatHangs has a getent that never answers: a user of the directory costs the start that asks, with an error that says so. A user without it is
// not delayed.
func TestDirectoryThatHangs(t *testing.T) {
	if !inNamespace(t, "#!/bin/sh\nexec sleep 1000\n") {
		return
	}
	h := newTestHost(t, false)
	begun := time.Now()
	ended := make(chan Exit)
	go func() {
		ended <- h.Run(t.Context(), t.Context(), Spec{Argv: []string{"/bin/true"}, User: "dora"})
	}()
	if e := h.Run(t.Context(), t.Context(), Spec{Argv: []string{"/bin/true"}, Env: []string{"PATH=/bin"}}); e.Err != nil || e.Code != 0 {
		t.Errorf("another start: %+v", e)
	}
	select {
	case e := <-ended:
		t.Fatalf("it ended before it was given up: %+v", e)
	default:
	}
	e := <-ended
	want := fmt.Sprintf("user dora: getent passwd dora: no answer within %v", getentTime)
	if e.Err == nil || e.Err.Error() != want {
		t.Errorf("got %v, want %s", e.Err, want)
	}
	if took := time.Since(begun); took < getentTime {
		t.Errorf("given up after %v", took)
	}
}

func TestHasDirectory(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                        false,
		"group: files":                            false,
		"group: files [NOTFOUND=return]  # sss":   false,
		"group: files systemd":                    true,
		"group:sss files":                         true,
		"passwd: files sss\ngroup: files":         false,
		"initgroups: files\ngroup: files sss":     false,
		"#group: files sss\n  group : files ldap": true,
	} {
		if got := hasDirectory([]byte(text), "initgroups", "group"); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
