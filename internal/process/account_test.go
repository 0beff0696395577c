//go:build linux

package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/internal/testtier"
)

// inDirectory is set for the test binary if it runs where a directory has accounts: see inNamespace.
const inDirectory = "COMMAND_TEST_DIRECTORY"

// fresh asks the directory each time.
var fresh *Accounts

// inNamespace runs this test again, in a mount namespace in which nsswitch.conf names the service extrausers, with accounts of its own. Nothing of the machine
// changes. The test is parallel. It returns whether this is that run.
func inNamespace(t *testing.T, getent string) bool {
	t.Helper()
	asRoot(t)
	if os.Getenv(inDirectory) != "" {
		return true
	}
	t.Parallel()
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

// installing is locked while a test looks for the package, or installs it.
var installing sync.Mutex

// needExtrausers makes sure that the machine has a service of nsswitch.conf beside files.
func needExtrausers(t *testing.T) {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
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
		"user": func() error { _, err := fresh.lookupIdentity("nobody-here", ""); return err }, "group": func() error { _, err := fresh.lookupGroup("nobody-here"); return err },
	} {
		if err := look(); err == nil || !strings.Contains(err.Error(), "getent") || !strings.Contains(err.Error(), "no such "+name) {
			t.Errorf("an unknown %s: %v", name, err)
		}
	}
}

// TestDirectoryThatHangs has a getent that never answers: a user of the directory costs the start that asks, with an error that says so. A user without it is
// not delayed.
func TestDirectoryThatHangs(t *testing.T) {
	testtier.Slow(t)
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
	want := fmt.Sprintf("not started: user dora: getent passwd dora: no answer within %v", getentTime)
	if !errors.Is(e.Err, ErrNotStarted) || e.Err.Error() != want {
		t.Errorf("got %v, want %s", e.Err, want)
	}
	if took := time.Since(begun); took < getentTime {
		t.Errorf("given up after %v", took)
	}
}

// TestAccountsWhileTheDirectoryHangs: a local user whose groups the directory may have, and a number that needs the directory for its group, are not started, which
// is not their fault. A number with a group is started without its entry.
func TestAccountsWhileTheDirectoryHangs(t *testing.T) {
	testtier.Slow(t)
	if !inNamespace(t, "#!/bin/sh\nexec sleep 1000\n") {
		return
	}
	h := newTestHost(t, false)
	var group sync.WaitGroup
	for _, account := range [][2]string{{"nobody", ""}, {"70001", ""}} {
		group.Go(func() {
			e := h.Run(t.Context(), t.Context(), Spec{Argv: []string{"/bin/true"}, User: account[0], Group: account[1]})
			if !errors.Is(e.Err, ErrNotStarted) || !errors.Is(e.Err, safefile.ErrUnanswered) {
				t.Errorf("%v: %+v", account, e)
			}
		})
	}
	group.Go(func() {
		if _, err := Environment(t.Context(), EnvSpec{User: "dora"}); !errors.Is(err, safefile.ErrUnanswered) {
			t.Errorf("the environment of a user of the directory: %v", err)
		}
	})
	group.Go(func() {
		env, err := Environment(t.Context(), EnvSpec{User: "70001", Group: "65534"})
		if want := "HOME=/ LOGNAME=70001 SHELL=/bin/sh USER=70001"; err != nil || strings.Join(env, " ") != want {
			t.Errorf("environment %q (%v), want %q", env, err, want)
		}
		e := h.Run(t.Context(), t.Context(), Spec{Argv: []string{"/bin/sh", "-c", "echo $(id -u) $(id -g) $(id -G)"}, Env: []string{"PATH=/bin"}, User: "70001",
			Group: "65534", Keep: 100})
		if string(e.Tail) != "70001 65534 65534\n" || e.Err != nil {
			t.Errorf("a number with a group: %q, %v", e.Tail, e.Err)
		}
	})
	group.Wait()
}

// TestSilentDirectoryIsAskedOnce: those who look up many accounts wait once for a directory that is silent, for users, rights and environments. One that answers is asked
// once for each entry.
func TestSilentDirectoryIsAskedOnce(t *testing.T) {
	testtier.Slow(t)
	if !inNamespace(t, `#!/bin/sh
echo $* >>/var/lib/extrausers/asked
[ -e /var/lib/extrausers/answers ] || exec sleep 1000
case $1 in passwd) echo $2:x:70009:70009::/:/bin/sh ;; *) echo $2 70003 ;; esac
`) {
		return
	}
	asked := func() string {
		text, err := os.ReadFile("/var/lib/extrausers/asked")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var silent Accounts
	for n := range 20 {
		user := fmt.Sprint("user-", n)
		want := "user " + user + ": not looked up, because the directory service did not answer for user user-0 within 5s"
		if n == 0 {
			want = "user user-0: getent passwd user-0: no answer within 5s"
		}
		_, err := silent.Rights(user, "")
		_, err2 := silent.Sources(user, "")
		_, err3 := Environment(t.Context(), EnvSpec{User: user, Accounts: &silent})
		for _, err := range []error{err, err2, err3} {
			if !errors.Is(err, safefile.ErrUnanswered) || fmt.Sprint(err) != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
	if got := asked(); got != "passwd user-0\n" {
		t.Errorf("the directory was asked %q", got)
	}
	if err := os.WriteFile("/var/lib/extrausers/answers", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var answered Accounts
	for range 3 {
		for _, user := range []string{"user-1", "user-2"} {
			if _, err := answered.Sources(user, "70009"); err != nil {
				t.Error(err)
			}
		}
	}
	if got, want := asked(), "passwd user-0\npasswd user-1\ninitgroups user-1\npasswd user-2\ninitgroups user-2\n"; got != want {
		t.Errorf("the directory was asked %q, want %q", got, want)
	}
}

// TestNumberThatTheDirectoryIsSlowFor: a user by number with a group waits 1.5 s. Without an answer in that time other users are still asked for, with their 5 s,
// but no further number waits.
func TestNumberThatTheDirectoryIsSlowFor(t *testing.T) {
	testtier.Slow(t)
	if !inNamespace(t, `#!/bin/sh
echo $* >>/var/lib/extrausers/asked
case "$1 $2" in
"passwd 7"*) exec sleep 1000 ;;
passwd*) echo $2:x:70009:70009::/:/bin/sh ;;
*) echo $2 70003 ;;
esac
`) {
		return
	}
	var by Accounts
	for _, user := range []string{"70001", "70001", "70002"} {
		if id, err := by.Rights(user, "65534"); err != nil || id == nil {
			t.Errorf("a number with a group: %v, %v", id, err)
		}
	}
	if source, err := by.Sources("dora", "65534"); err != nil || !strings.Contains(source, "uid 70009") {
		t.Errorf("another user: %q, %v", source, err)
	}
	if _, err := by.Rights("70001", ""); !errors.Is(err, safefile.ErrUnanswered) { // a number that needs the directory for its group
		t.Errorf("a number alone: %v", err)
	}
	if _, err := by.Rights("erna", ""); !errors.Is(err, safefile.ErrUnanswered) {
		t.Errorf("after 5 s without an answer: %v", err)
	}
	const want = "passwd 70001\npasswd dora\ninitgroups dora\npasswd 70001\n"
	if asked, err := os.ReadFile("/var/lib/extrausers/asked"); err != nil || string(asked) != want {
		t.Errorf("the directory was asked %q (%v), want %q", asked, err, want)
	}
}

// TestNamesOfADirectory has a directory that answers with another spelling, as SSSD does, or with another entry.
func TestNamesOfADirectory(t *testing.T) {
	const script = `#!/bin/sh
case "$1 $2" in
"passwd alice" | "passwd 70005") echo alice@corp.example:x:70005:70006::/home/alice:/bin/sh ;;
"passwd Alice") echo alice:x:70005:70006::/home/alice:/bin/sh ;;
"passwd bob" | "passwd alic" | "passwd 70007") echo alice@corp.example:x:70005:70006::/home/alice:/bin/sh ;;
"passwd carol") echo carol@:x:70005:70006::/home/carol:/bin/sh ;;
"group Staff") echo staff@corp.example:x:70006:alice ;;
"group sta") echo staff@corp.example:x:70006:alice ;;
*) exit 2 ;;
esac
`
	if !inNamespace(t, script) {
		return
	}
	for name, known := range map[string]bool{"alice": true, "Alice": true, "70005": true, "bob": false, "alic": false, "carol": false, "70007": false} {
		a, err := fresh.lookupIdentity(name, "")
		if known != (err == nil) || known && (a.uid != 70005 || a.gid != 70006) || !known && !strings.Contains(err.Error(), "no line of passwd(5)") {
			t.Errorf("user %s: %v, %v", name, a, err)
		}
	}
	if gid, err := fresh.lookupGroup("Staff"); err != nil || gid != 70006 {
		t.Errorf("group Staff: %d, %v", gid, err)
	}
	if gid, err := fresh.lookupGroup("sta"); err == nil || !strings.Contains(err.Error(), "no line of group(5)") {
		t.Errorf("group sta: %d, %v", gid, err)
	}
}

func TestDirectoryServices(t *testing.T) {
	for text, want := range map[string]string{
		"":                                        "",
		"group: files":                            "",
		"group: files [NOTFOUND=return]  # sss":   "",
		"group: files systemd":                    "systemd",
		"group:sss files systemd":                 "sss systemd",
		"passwd: files sss\ngroup: files":         "",
		"initgroups: files\ngroup: files sss":     "",
		"#group: files sss\n  group : files ldap": "ldap",
	} {
		if got := strings.Join(directoryServices([]byte(text), "initgroups", "group"), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestLocalUserBesideSystemd has nsswitch.conf of Debian: the groups of a user of /etc/passwd are not asked for.
func TestLocalUserBesideSystemd(t *testing.T) {
	if !inNamespace(t, "#!/bin/sh\necho $2 70003\n") {
		return
	}
	if err := os.WriteFile("/etc/nsswitch.conf", []byte("group: files systemd\n"), 0o600); err != nil { // the one of the namespace
		t.Fatal(err)
	}
	for source, want := range map[string]int{fromPasswd: 0, fromGetent: 1} {
		if groups, err := fresh.directoryGroups("nobody", source); err != nil || len(groups) != want {
			t.Errorf("a user from %s: groups %q, %v", source, groups, err)
		}
	}
}
