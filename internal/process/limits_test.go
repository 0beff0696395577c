//go:build linux

package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNice runs commands of many priorities at once; ours stays what it is.
func TestNice(t *testing.T) {
	before, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	own := 20 - before // the system call returns 20 - nice, which is never negative
	lowest := own
	if os.Geteuid() == 0 {
		lowest = -20
	}
	everyMode(t, func(t *testing.T, h *Host) {
		var runs sync.WaitGroup
		for n := lowest; n <= 19; n++ {
			runs.Go(func() {
				mask := uint32(0o27)
				for i, s := range []Spec{{Nice: &n}, {Nice: &n, Umask: &mask}, {}} {
					s.Argv, s.Env, s.Keep = []string{"/bin/sh", "-c", "nice; umask"}, []string{"PATH=/usr/bin:/bin"}, 100
					want := []string{fmt.Sprint(n, "\n"), fmt.Sprint(n, "\n0027\n"), fmt.Sprint(own, "\n")}[i]
					if e := h.Run(t.Context(), t.Context(), s); !strings.HasPrefix(string(e.Tail), want) {
						t.Errorf("priority and umask %q, want %q: %+v", e.Tail, want, e)
					}
				}
			})
		}
		runs.Wait()
	})
	if after, err := unix.Getpriority(unix.PRIO_PROCESS, 0); after != before {
		t.Errorf("our own was %d, and is %d (%v)", before, after, err)
	}
}

// TestNiceTakesAPrivilege: without it the run says so, and not that its program can't be executed, which has the same number.
func TestNiceTakesAPrivilege(t *testing.T) {
	const nobody = 65534
	err := onThread(func() error {
		if os.Geteuid() == 0 { // of this thread alone
			if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); no != 0 {
				return no
			}
		}
		return setNice(-20)
	})
	s := Spec{Argv: []string{"/bin/true"}}
	cmd, fault := s.newCommand(t.Context())
	if fault != nil {
		t.Fatal(fault)
	}
	err = s.startError(cmd, group{}, err)
	if !errors.Is(err, ErrNice) || errors.Is(err, ErrNotExecutable) || !strings.Contains(err.Error(), "nice = -20: permission denied; one above") {
		t.Error(err)
	}
}

// likeACgroup makes a directory with the files of a cgroup.
func likeACgroup(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		put(t, filepath.Join(dir, name), text, 0o600)
	}
	return dir
}

func content(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLimitsInTheFilesOfACgroup(t *testing.T) {
	const both = 200
	for _, tc := range []struct {
		limits Limits
		files  []string // that are there
		want   []string // in them
		fault  string
	}{
		{Limits{}, nil, nil, ""},
		{Limits{Memory: 64 << 20, Pids: both}, []string{"memory.max", "memory.oom.group", "memory.swap.max", "pids.max"}, []string{"67108864", "1", "0", "200"}, ""},
		{Limits{Memory: 1 << 30}, []string{"memory.max", "memory.oom.group", "pids.max"}, []string{"1073741824", "1", ""}, ""},
		{Limits{Pids: 1}, []string{"memory.max", "pids.max"}, []string{"", "1"}, ""},
		{Limits{Memory: 1 << 20}, []string{"pids.max"}, []string{""}, "memory.max: no such file"},
		{Limits{Memory: 1 << 20, Pids: 1}, []string{"memory.max", "memory.oom.group"}, []string{"1048576", "1"}, "pids.max: no such file"},
	} {
		files := map[string]string{}
		for _, name := range tc.files {
			files[name] = ""
		}
		c := &cgroup{dir: likeACgroup(t, files)}
		err := c.setLimits(tc.limits)
		if (err == nil) != (tc.fault == "") || err != nil && !strings.Contains(err.Error(), tc.fault) {
			t.Errorf("%+v: %v, want %q", tc.limits, err, tc.fault)
		}
		for i, name := range tc.files {
			if got := content(t, c.dir, name); got != tc.want[i] {
				t.Errorf("%+v: %s is %q, want %q", tc.limits, name, got, tc.want[i])
			}
		}
	}
}

func TestControllersAreHandedOn(t *testing.T) {
	for _, tc := range []struct {
		has    string
		limits Limits
		want   string // for the cgroups below; "" for a fault
		fault  string
	}{
		{"cpuset cpu io memory pids\n", Limits{Memory: 1 << 20, Pids: 1}, "+memory +pids", ""},
		{"memory\n", Limits{Memory: 1 << 20}, "+memory", ""},
		{"memory\n", Limits{Memory: 1 << 20, Pids: 1}, "", "the controller pids is not available in "},
		{"memoryless pids\n", Limits{Memory: 1 << 20}, "", "the controller memory is not available in "},
		{"\n", Limits{Pids: 1}, "", "the controller pids is not available in "},
	} {
		own := likeACgroup(t, map[string]string{"cgroup.controllers": tc.has, "cgroup.subtree_control": "",
			"base/cgroup.controllers": tc.has, "base/cgroup.subtree_control": ""})
		c := &cells{base: &base{dir: own + "/base"}}
		err := c.allowLimits(tc.limits)
		if (err == nil) != (tc.fault == "") || err != nil && (!errors.Is(err, ErrLimits) || !strings.Contains(err.Error(), tc.fault+own+" (limits need")) {
			t.Errorf("%q: %v, want %q", tc.has, err, tc.fault)
		}
		for _, dir := range []string{own, own + "/base"} {
			if got := content(t, dir, "cgroup.subtree_control"); got != tc.want {
				t.Errorf("%q: %s hands on %q, want %q", tc.has, dir, got, tc.want)
			}
		}
	}
}

// TestReplicaLeavesItsCgroupFirst, also where the kernel would hand the controllers on with a process in it, as it does with pids alone: then nothing
// could be started below any more. Only the root of all, which has no type, may have both.
// Promise: P9
func TestReplicaLeavesItsCgroupFirst(t *testing.T) {
	pid := strconv.Itoa(os.Getpid())
	for _, tc := range []struct{ kind, has, moved string }{{"cgroup.type", "cpu pids\n", pid}, {"no.type", "cpu pids\n", ""}, {"cgroup.type", "cpu\n", ""}} {
		own := likeACgroup(t, map[string]string{"cgroup.controllers": tc.has, "cgroup.subtree_control": "", "cgroup.procs": pid + "\n", tc.kind: "domain\n",
			"leaf/cgroup.procs": "", "base/cgroup.subtree_control": ""})
		err := (&base{dir: own + "/base", leaf: own + "/leaf"}).enableControllers([]string{"pids"})
		if got := content(t, own, "leaf/cgroup.procs"); got != tc.moved || (err == nil) != strings.Contains(tc.has, "pids") {
			t.Errorf("%+v: moved %q, %v", tc, got, err)
		}
	}
}

// TestOnlyOurOwnProcessesAreMoved out of a cgroup that shall hand on controllers.
func TestOnlyOurOwnProcessesAreMoved(t *testing.T) {
	pid := strconv.Itoa(os.Getpid())
	const leaf = "leaf/cgroup.procs"
	own := likeACgroup(t, map[string]string{"cgroup.procs": pid + "\n", leaf: ""})
	if err := moveToLeaf(own, own+"/leaf"); err != nil || content(t, own, leaf) != pid {
		t.Errorf("%v; moved: %q", err, content(t, own, leaf))
	}
	for _, stranger := range []string{"1", "0", strconv.Itoa(os.Getppid())} {
		own = likeACgroup(t, map[string]string{"cgroup.procs": pid + "\n" + stranger + "\n", leaf: ""})
		if err := moveToLeaf(own, own+"/leaf"); err == nil || !strings.Contains(err.Error(), "cgroup "+own+" also holds process "+stranger+",") || content(t, own, leaf) != "" {
			t.Errorf("beside %s: %v; moved: %q", stranger, err, content(t, own, leaf))
		}
	}
}

func TestOutOfMemoryKillIsReported(t *testing.T) {
	for events, want := range map[string]bool{
		"low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 1\n":  true,
		"low 0\nhigh 0\nmax 7\noom 1\noom_kill 0\noom_group_kill 0\n":  false,
		"low 0\nhigh 0\nmax 0\noom 0\noom_kill 13\noom_group_kill 0\n": true,
		"": false,
	} {
		dir, err := os.Open(likeACgroup(t, map[string]string{"memory.events": events}))
		if err != nil {
			t.Fatal(err)
		}
		if got := (&cgroup{fd: dir}).outOfMemory(); got != want {
			t.Errorf("%q: %v", events, got)
		}
		dir.Close()
	}
}

// TestCheckReportsAll that a machine can't do.
func TestCheckReportsAll(t *testing.T) {
	h := newTestHost(t, false)
	own := 19
	if err := h.Check(Spec{Nice: &own}); err != nil {
		t.Error(err)
	}
	err := h.Check(Spec{Nice: &own, Limits: Limits{Pids: 1}})
	if !errors.Is(err, ErrLimits) || errors.Is(err, ErrNice) || !strings.Contains(err.Error(), "switched off by the test") {
		t.Error(err)
	}
}
