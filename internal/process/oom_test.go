//go:build linux

package process

import (
	"os"
	"path/filepath"
	"testing"
)

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
