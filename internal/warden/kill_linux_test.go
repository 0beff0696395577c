package warden

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
)

// A number that was given to a stranger is known by the stranger's birth.
// Promise: P7
func TestStrangerIsNotHit(t *testing.T) {
	for _, byNumber := range []bool{false, true} {
		s := newSweeper()
		s.byNumber = byNumber
		leader := startGroup(t).Process.Pid
		p := s.newTarget("", "")
		p.setLeader(leader, processStart(leader)-1)
		p.terminate()
		p.killKnown()
		if !p.killRest() {
			t.Error("somebody else is taken for the run")
		}
		if !living(leader) {
			t.Error("somebody else was killed")
		}
	}
}

func TestGroupIsKilledByHandleAndByNumber(t *testing.T) {
	for _, how := range []string{"by handle", "by number", "without handles"} {
		t.Run(how, func(t *testing.T) {
			s := newSweeper()
			s.byNumber = how == "by number"
			leader := startGroup(t).Process.Pid
			eventually(t, "there is a member", func() bool { return members(leader) == 2 })
			p := s.newTarget("", "")
			p.setLeader(leader, processStart(leader))
			if how == "without handles" {
				own := p.(*processes)
				unix.Close(own.handle)
				own.handle = -1
			}
			if p.killRest() {
				t.Error("nobody was found")
			}
			p.killKnown()
			eventually(t, "the group is dead", func() bool { s.beginRound(); return p.killRest() && !groupLives(leader) })
			p.forgetLeader()
			p.killKnown() // no process is there
		})
	}
}

// members counts the living of a group.
func members(group int) int {
	n := 0
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		if s, ok := proc.Of(pid); ok && !s.Dead() && s.Group == group {
			n++
		}
	}
	return n
}

// When the leader is dead and reaped, its group is still reached by the handle, since that stands for the group as well.
func TestGroupIsKilledAfterItsLeaderWasReaped(t *testing.T) {
	s := newSweeper()
	cmd := startGroup(t)
	leader := cmd.Process.Pid
	eventually(t, "there is a member", func() bool { return members(leader) == 2 })
	p := s.newTarget("", "")
	p.setLeader(leader, processStart(leader))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	s.beginRound()
	p.killKnown()
	if s.byNumber {
		t.Skip("the kernel is older than 6.9: it can't signal a group by a handle")
	}
	eventually(t, "the member is dead", func() bool { s.beginRound(); return p.killRest() && !groupLives(leader) })
}
