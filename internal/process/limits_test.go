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

	"github.com/cronclave/cronclave/internal/proc"
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

// withLimits runs a test with a host that keeps such limits. Where this machine can't the test is another one: nothing may be run at all. With
// CRONCLAVE_TEST_LIMITS=1, which make vm sets, that is a failure.
func withLimits(t *testing.T, l Limits, test func(t *testing.T, h *Host)) {
	t.Helper()
	h, err := NewHost(HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	able := h.Check(Spec{Limits: l})
	if able == nil {
		test(t, h)
		return
	}
	e := h.Run(t.Context(), t.Context(), Spec{Name: "limited", Argv: []string{"/bin/echo", "begun"}, Limits: l, Keep: 100})
	if !errors.Is(able, ErrLimits) || !errors.Is(e.Err, ErrLimits) || len(e.Tail) > 0 {
		t.Errorf("can't keep limits: %v; and the run: %+v", able, e)
	}
	if os.Getenv("CRONCLAVE_TEST_LIMITS") == "1" {
		t.Error("this machine is said to keep limits: ", able)
	}
	t.Log("only that nothing is run without its limits was tested:", able)
}

// hungry needs 256 MiB. Its sibling in the tree needs nothing.
const hungry = `sh -c 'echo beside $$; exec cat $HOLD' & awk 'BEGIN { s = "x"; while (length(s) < 268435456) s = s s; print "survived" }'; echo survived`

// numerous starts a hundred processes beside itself.
const numerous = `n=0; while [ $n -lt 100 ]; do sleep 1000 & n=$((n+1)); echo $n; done; echo survived`

// bomb doubles for ever.
const bomb = `b() { b & b & }; b; exec cat $HOLD`

// TestLimitsBite, one without the other, too: a machine hands their controllers on by different rules.
// Promise: P9
func TestLimitsBite(t *testing.T) {
	for name, l := range map[string]Limits{"memory": {Memory: 64 << 20}, "pids": {Pids: 32}, "both": {Memory: 64 << 20, Pids: 32}} {
		t.Run(name, func(t *testing.T) {
			withLimits(t, l, func(t *testing.T, h *Host) {
				if l.Memory > 0 {
					testMemory(t, h, l)
				}
				if l.Pids > 0 {
					testPids(t, h, l)
				}
				if left, _ := filepath.Glob(h.cells.base.dir + "/*-*"); len(left) > 0 {
					t.Errorf("cgroups are left: %v", left)
				}
			})
		})
	}
}

// testMemory demands that a run that takes too much memory is killed as a whole, and no other run.
func testMemory(t *testing.T, h *Host, l Limits) {
	sibling, greedy := newScript(t, h, `echo up; read _ <$GO`), newScript(t, h, hungry)
	sibling.spec.Limits, greedy.spec.Limits = l, l
	sibling.start()
	sibling.await("up")
	greedy.start()
	beside := greedy.awaitPID("beside")
	if e := greedy.end(); !e.OutOfMemory || e.Signal != "SIGKILL" || e.Err != nil || strings.Contains(string(e.Tail), "survived") || living(t, beside) {
		t.Errorf("it took 256 MiB: %+v, %q; another process of it lives: %v", e, e.Tail, living(t, beside))
	}
	sibling.release("GO")
	if e := sibling.end(); e.Status() != 0 || e.OutOfMemory {
		t.Errorf("the run beside it: %+v", e)
	}
}

// testPids demands that a run has as many processes as it may, that another has its own number, and that a fork bomb is killed whole.
func testPids(t *testing.T, h *Host, l Limits) {
	bombing := newScript(t, h, bomb)
	bombing.spec.Limits = l
	bombing.start()
	eventually(t, "a fork that fails", func() bool {
		refused, _ := filepath.Glob(h.cells.base.dir + "/*-*/pids.events")
		return len(refused) == 1 && content(t, refused[0]) != "max 0\n"
	})
	counting := newScript(t, h, numerous)
	counting.spec.Limits = l
	counting.start()
	e := counting.end()
	if most := strconv.Itoa(l.Pids - 1); e.Status() == 0 || !strings.Contains(string(e.Tail), "\n"+most+"\n") || strings.Contains(string(e.Tail), "\n"+strconv.Itoa(l.Pids)+"\n") {
		t.Errorf("with %d processes at most: %+v, %q", l.Pids, e, e.Tail)
	}
	bombing.kill()
	if e := bombing.end(); e.Signal != "SIGKILL" || e.OutOfMemory {
		t.Errorf("the bomb: %+v", e)
	}
}

// TestKilledReplicaWithLimitsLeavesNothing: neither the run, nor a cgroup, nor a place where no other replica can start.
// Promise: P7
func TestKilledReplicaWithLimitsLeavesNothing(t *testing.T) {
	l := Limits{Memory: 64 << 20, Pids: 32}
	withLimits(t, l, func(t *testing.T, h *Host) {
		place := newPlace(t, h)
		for range 2 { // the second where the first was killed
			r := startTestReplica(t, "cgroup", clan+"wait", replicaLimits+"=1", replicaPlace+"="+place)
			members := r.members(4)
			r.signal(unix.SIGKILL)
			allDead(t, "a killed replica's run", members)
			r.gone()
			isAsBefore(t, place)
		}
	})
}

// TestReplicaWithLimitsLeavesNothing when it ends by itself.
func TestReplicaWithLimitsLeavesNothing(t *testing.T) {
	l := Limits{Memory: 64 << 20, Pids: 32}
	withLimits(t, l, func(t *testing.T, h *Host) {
		place := newPlace(t, h)
		for range 2 {
			r := startTestReplica(t, "cgroup", "echo done", replicaLimits+"=1", replicaPlace+"="+place)
			r.await("closing", 1)
			<-r.ended
			r.gone()
			isAsBefore(t, place)
		}
	})
}

// isAsBefore demands that nothing is below a cgroup, nor handed on by it.
func isAsBefore(t *testing.T, place string) {
	t.Helper()
	if left, handed := proc.CgroupsBelow(place), strings.TrimSpace(content(t, place, "cgroup.subtree_control")); len(left) > 0 || handed != "" {
		t.Errorf("left in the replica's cgroup: %v, %q", left, handed)
	}
}

// newPlace makes a cgroup for a replica alone, beside those of a host that keeps limits: it has the controllers.
func newPlace(t *testing.T, h *Host) string {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(h.cells.base.dir), "place-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proc.RemoveCgroup(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestLocateOOMControl(t *testing.T) {
	const mounts = "34 30 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n" +
		"35 30 0:32 /docker/1 /sys/fs/cgroup/box rw,relatime shared:1 - cgroup cgroup rw,cpu,memory\n" +
		"36 30 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
	for member, want := range map[string]string{
		"5:devices:/\n4:memory:/a/b\n0::/\n": "/sys/fs/cgroup/memory/a/b/memory.oom_control",
		"4:cpu,memory:/\n":                   "/sys/fs/cgroup/memory/memory.oom_control",
		"8:pids:/a\n0::/\n":                  "",
		"":                                   "",
	} {
		if got := locateOOMControl(mounts, member); got != want {
			t.Errorf("%q: %q, want %q", member, got, want)
		}
	}
	if got, want := locateOOMControl(mounts[len(mounts)/3:], "4:memory:/docker/1/run\n"), "/sys/fs/cgroup/box/run/memory.oom_control"; got != want {
		t.Errorf("below a mounted part: %q, want %q", got, want)
	}
}

// TestKillsForMemoryOfTheReplica has the kernel's counter rise while a command runs that SIGKILL ends: the exit has the difference. A command that ends well has none.
func TestKillsForMemoryOfTheReplica(t *testing.T) {
	for name, format := range map[string]string{"v1": "oom_kill_disable 0\nunder_oom 0\noom_kill %s\n", "v2": "low 0\nhigh 0\nmax 0\noom 1\noom_kill %s\noom_group_kill 0\n"} {
		h := newTestHost(t, false)
		file := filepath.Join(t.TempDir(), "counter")
		write := func(n string) string { return "printf '" + format + "' " + n + " >" + file }
		if err := os.WriteFile(file, []byte("oom_kill 3\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		h.oom = oomCounter(file)
		if e := sh(t, h, write("5")+"; kill -KILL $$"); e.OOMKills != 2 || e.Signal != "SIGKILL" {
			t.Errorf("%s: ended as %+v, want two kills", name, e)
		}
		if e := sh(t, h, write("6")); e.OOMKills != 0 {
			t.Errorf("%s: a run that ended well has %d kills", name, e.OOMKills)
		}
		if e := sh(t, h, "kill -KILL $$"); e.OOMKills != 0 {
			t.Errorf("%s: a run without a kill has %d", name, e.OOMKills)
		}
	}
	if counter := newOOMCounter(); counter != "" && counter.killCount() < 0 {
		t.Errorf("%s", counter)
	}
}
