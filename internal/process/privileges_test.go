//go:build linux

package process

import (
	"os"
	"os/exec"
	"os/user"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// statusOf runs a command that prints its /proc/self/status and returns the fields.
func statusOf(t *testing.T, h *Host, s Spec) map[string]string {
	t.Helper()
	s.Argv, s.Keep = []string{"/bin/cat", "/proc/self/status"}, 64<<10
	e := h.Run(t.Context(), t.Context(), s)
	if e.Err != nil || e.Code != 0 {
		t.Fatalf("%+v", e)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(e.Tail)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}

const inheritsCapabilities = "CRONCLAVE_TEST_INHERITS_CAPABILITIES"

// TestPrivilegesOfAUser: a job with a user has no capability, ambient and inheritable ones of the replica included, and no_new_privs as it is told.
func TestPrivilegesOfAUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change the user")
	}
	if _, err := user.Lookup("nobody"); err != nil {
		t.Skip(err)
	}
	if os.Getenv(inheritsCapabilities) == "" { // as systemd's AmbientCapabilities= has a replica
		again := exec.Command(os.Args[0], "-test.run=^TestPrivilegesOfAUser$")
		again.Env = append(os.Environ(), inheritsCapabilities+"=1")
		again.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_SETUID, unix.CAP_NET_BIND_SERVICE}}
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	h := newTestHost(t, false)
	const none = "0000000000000000"
	for _, noNew := range []bool{true, false} {
		got := statusOf(t, h, Spec{User: "nobody", NoNewPrivs: noNew})
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
			if got[set] != none {
				t.Errorf("%s is %s", set, got[set])
			}
		}
		if want := map[bool]string{true: "1", false: "0"}[noNew]; got["NoNewPrivs"] != want {
			t.Errorf("NoNewPrivs is %s, want %s", got["NoNewPrivs"], want)
		}
	}
	got := statusOf(t, h, Spec{})
	if got["CapEff"] == none || got["NoNewPrivs"] != "0" || got["CapInh"] == none {
		t.Errorf("a job without a user: %v %v %v", got["CapEff"], got["NoNewPrivs"], got["CapInh"])
	}
}

// The files that this process was started with are not open in the commands that it starts, with a user or without.
func TestInheritedFiles(t *testing.T) {
	h := newTestHost(t, false)
	fd, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0) // without O_CLOEXEC, as one that a parent has left open
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	listed := func() string {
		e := h.Run(t.Context(), t.Context(), Spec{Argv: []string{"/bin/sh", "-c", "ls -l /proc/self/fd"}, Keep: 4096})
		return string(e.Tail)
	}
	if out := listed(); !strings.Contains(out, "/etc/passwd") {
		t.Fatalf("the test is void: %s", out)
	}
	KeepInherited()
	if out := listed(); strings.Contains(out, "/etc/passwd") {
		t.Errorf("a command has %s", out)
	}
}
