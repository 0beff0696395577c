//go:build linux

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
)

func TestUnifiedPath(t *testing.T) {
	tests := []struct{ member, want, fault string }{
		{"0::/system.slice/cronclave.service\n", "/system.slice/cronclave.service", ""},
		{"9:name=systemd:/\n4:memory:/a\n0::/\n", "/", ""},
		{"9:name=systemd:/\n4:memory:/a\n", "", "in none"},
		{"0::/../other\n", "", "outside"},
	}
	for _, tt := range tests {
		got, err := unifiedPath(tt.member)
		if got != tt.want || (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%q: got %q, %v", tt.member, got, err)
		}
	}
}

func TestLocate(t *testing.T) {
	const (
		plain     = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid    = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
		container = "35 24 0:30 /docker/4f /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
		escaped   = `35 24 0:30 / /mnt/c\040group\134x rw - cgroup2 cgroup2 rw` + "\n"
		ancestor  = "35 24 0:30 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	)
	tests := []struct{ mounts, path, want string }{
		{plain, "/user.slice/x", "/sys/fs/cgroup/user.slice/x"},
		{plain, "/", "/sys/fs/cgroup"},
		{hybrid, "/", "/sys/fs/cgroup/unified"},
		{container, "/docker/4f", "/sys/fs/cgroup"},
		{container, "/docker/4f/inner", "/sys/fs/cgroup/inner"},
		{container, "/docker/other", ""},
		{container + plain, "/docker/other", "/sys/fs/cgroup/docker/other"},
		{escaped, "/a", `/mnt/c group\x/a`},
		{ancestor, "/", ""},
		{"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "/", ""},
		{"nonsense\n", "/", ""},
	}
	for _, tt := range tests {
		got, err := mountedPath(tt.mounts, tt.path)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s in %q: got %q, %v", tt.path, tt.mounts, got, err)
		}
	}
}

func TestRunIsBornInACgroupOfItsOwn(t *testing.T) {
	h := newTestHost(t, true)
	s := newScript(t, h, "echo path $(grep ^0:: /proc/self/cgroup); read _ <$GO")
	s.spec.Name = "job/1 ä"
	s.start()
	if path := s.await("path"); !strings.HasPrefix(filepath.Base(path), "job_1__-") {
		t.Errorf("cgroup %s", path)
	}
	s.release("GO")
	s.end()
	left, err := filepath.Glob(h.cells.base.dir + "/*-*")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A run as root may make cgroups below its own, as a container engine does.
func TestCgroupsBelowTheRunsOwn(t *testing.T) {
	h := newTestHost(t, true)
	s := newScript(t, h, `d=$CELL/$(basename $(sed -n 's/^0:://p' /proc/self/cgroup))/inner
		mkdir $d && setsid sh -c "trap 'echo told' TERM; echo \$\$ >$d/cgroup.procs; echo inner \$\$; while :; do sleep 1; done" &
		trap '' TERM; while :; do sleep 1; done`)
	s.spec.Env = append(s.spec.Env, "CELL="+h.cells.base.dir)
	s.start()
	inner := s.awaitPID("inner")
	s.stop()
	s.await("told")
	s.kill()
	s.end()
	if living(t, inner) {
		t.Error("it lives on")
	}
}

// The leader moves itself to another cgroup, as pam_systemd moves sudo; its group is still ours.
func TestLeaderThatLeavesTheCgroup(t *testing.T) {
	h := newTestHost(t, true)
	own, err := ownCgroup("/proc/self/mountinfo", "/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	s := newScript(t, h, `echo $$ >$OWN/cgroup.procs; trap 'echo told' TERM; sh -c 'trap "" TERM; echo child $$; exec cat $HOLD' & echo leader $$; while :; do sleep 1; done`)
	s.spec.Env = append(s.spec.Env, "OWN="+own)
	s.start()
	leader, child := s.awaitPID("leader"), s.awaitPID("child")
	s.stop()
	s.await("told")
	s.kill()
	s.end()
	if living(t, leader) || living(t, child) {
		t.Error("they live on")
	}
}

func TestStaleCgroupsAreRemovedAndLivingOnesAreNot(t *testing.T) {
	h := newTestHost(t, true)
	own := filepath.Dir(h.cells.base.dir)
	stale, err := os.MkdirTemp(own, "cronclave-1-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(stale+"/run-1", 0o755); err != nil {
		t.Fatal(err)
	}
	newTestHost(t, true)
	if _, err := os.Stat(stale); err == nil {
		t.Errorf("%s is still there", stale)
		_ = proc.RemoveCgroup(stale)
	}
	if _, err := os.Stat(h.cells.base.dir); err != nil {
		t.Errorf("a living replica's cgroup is gone: %v", err)
	}
}

func TestCloseRemovesTheReplicasCgroup(t *testing.T) {
	b, err := newBase()
	if err != nil {
		t.Skipf("no writable cgroup v2 on this machine: %v", err)
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(b.dir); err == nil {
		t.Errorf("%s is still there", b.dir)
	}
}

// Where the cgroup's directory is there but not ours to write, the reason is said.
func TestNoBaseWithoutTheRight(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can take a right away from itself for a moment")
	}
	err := onThread(func() error {
		if err := unix.Setfsuid(65534); err != nil {
			return err
		}
		_, err := newBase()
		if err == nil {
			return fmt.Errorf("a base was made")
		}
		if !os.IsPermission(err) {
			return err
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
