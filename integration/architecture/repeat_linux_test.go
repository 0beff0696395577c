package architecture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Two busy loops run beside the tests. They end with the run, and also if the script is killed.
func TestBusyLoopsEnd(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %t", kill), func(t *testing.T) {
			t.Parallel()
			r := newRepository(t, "\tread x <$$RAN\n")
			if err := syscall.Mkfifo(r.ran, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), r.dir+"/.ci/repeat", "1")
			cmd.Env = append(os.Environ(), "RAN="+r.ran, "TMPDIR="+t.TempDir(), "BUSY=2")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			hold, err := os.OpenFile(r.ran, os.O_WRONLY, 0) // waits until the recipe reads
			if err != nil {
				t.Fatal(err)
			}
			children := childrenOf(t, cmd.Process.Pid)
			if len(children) != 3 { // make below timeout, and the loops
				t.Errorf("%d children of the script, want 3", len(children))
			}
			if kill {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				children = slices.DeleteFunc(children, func(pid string) bool { return nameOf(pid) == "timeout" })
				awaitEnds(t, children)
			}
			if _, err := hold.WriteString("\n"); err != nil {
				t.Fatal(err)
			}
			_ = hold.Close()
			if err := cmd.Wait(); !kill && err != nil {
				t.Error(err)
			}
			awaitEnds(t, children)
		})
	}
}

func childrenOf(t *testing.T, pid int) []string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

func nameOf(pid string) string {
	name, _ := os.ReadFile(filepath.Join("/proc", pid, "comm"))
	return strings.TrimSpace(string(name))
}

// awaitEnds waits until none of the processes runs. A zombie has no program any more.
func awaitEnds(t *testing.T, pids []string) {
	t.Helper()
	tick, limit := time.NewTicker(20*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for slices.ContainsFunc(pids, runs) {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("processes that outlive the script: %v", pids)
		}
	}
}

func runs(pid string) bool {
	_, err := os.Readlink(filepath.Join("/proc", pid, "exe"))
	return err == nil
}
