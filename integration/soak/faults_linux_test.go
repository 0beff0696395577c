package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/integration/harness"
)

// faultKind is something that befalls a cluster.
type faultKind struct {
	name   string
	lots   int  // of which one is drawn
	most   int  // seats that it may hit at once; 0 is a fault of Redis, which hits all
	ends   bool // it ends replicas, so the first seat is spared
	silent bool // a grant may be made that no replica hears of
	befall func(*soak, *testing.T, []*seat)
}

// A kind says how long it lasts: seats that are down come back, links are mended, and Redis answers when it is over.
var faultKinds = []faultKind{
	{"kill -9", 6, 3, true, true, (*soak).kill},
	{"graceful restart", 4, 2, true, false, (*soak).restart},
	{"frozen replica", 5, 3, false, true, (*soak).freeze},
	{"kill -9 of a warden", 3, 3, false, false, (*soak).killWardens},
	{"wrong clock", 3, 2, true, true, (*soak).setClocks},
	{"link reset", 2, 3, false, true, linksAre(func() harness.Fault { return harness.Fault{Reset: true} })},
	{"requests lost", 2, 3, false, true, linksAre(func() harness.Fault { return harness.Fault{Requests: harness.LetsNothingThrough} })},
	{"replies lost", 2, 3, false, true, linksAre(func() harness.Fault { return harness.Fault{Replies: harness.LetsNothingThrough} })},
	{"one reply in six lost", 2, 3, false, true, linksAre(func() harness.Fault { return harness.Fault{Replies: harness.LetsAllButOneIn(6)} })},
	{"frozen Redis", 2, 0, false, true, (*soak).freezeRedis},
	{"kill -9 of Redis", 2, 0, false, true, (*soak).killRedis},
	{flushed, 1, 0, false, true, (*soak).flush},
	{emptied, 1, 0, false, true, (*soak).emptyRedis},
}

// With these faults Redis loses its data, its history too.
const (
	flushed = "FLUSHALL"
	emptied = "Redis without its memory"
)

// mishap is a fault that happened, by the clock of Redis, which is that of this machine.
type mishap struct {
	faultKind
	victims  []string
	from, to time.Time
	lost     time.Time // Redis lost its data just before, if it did: on a busy machine that is seconds after from
}

func (m mishap) String() string {
	const clock = "15:04:05.000"
	return fmt.Sprintf("%s to %s (ticks %d to %d): %s %s", m.from.Format(clock), m.to.Format(clock), m.from.Unix(), m.to.Unix(), m.name, strings.Join(m.victims, ", "))
}

// forgets returns whether Redis lost its data.
func (m mishap) forgets() bool { return m.name == flushed || m.name == emptied }

// hits returns whether a replica was affected.
func (m mishap) hits(name string) bool { return m.most == 0 || slices.Contains(m.victims, name) }

// during returns whether an instant is in the time of the fault, stretched by a margin at either side.
func (m mishap) during(at time.Time, before, after time.Duration) bool {
	return !at.Before(m.from.Add(-before)) && !at.After(m.to.Add(after))
}

func describe(faults []mishap) string {
	var b strings.Builder
	for _, m := range faults {
		fmt.Fprintf(&b, "  %v\n", m)
	}
	return b.String()
}

func (s *soak) drawKind() faultKind {
	all := 0
	for _, k := range faultKinds {
		all += k.lots
	}
	n := s.random.IntN(all)
	i := slices.IndexFunc(faultKinds, func(k faultKind) bool { n -= k.lots; return n < 0 })
	return faultKinds[i]
}

// befall has a fault happen to some seats at some moment, and returns when it is over.
func (s *soak) befall(t *testing.T, k faultKind) {
	t.Helper()
	var victims []*seat
	if k.most > 0 {
		able := s.seats
		if k.ends {
			able = able[1:]
		}
		for _, i := range s.random.Perm(len(able))[:1+s.random.IntN(k.most)] {
			victims = append(victims, able[i])
		}
	}
	moment := s.between(0, time.Second)
	if (mishap{faultKind: k}).forgets() {
		s.awaitObserved(t)
	}
	harness.Pass(t, time.Now().Add(moment))
	m := mishap{faultKind: k, from: time.Now()}
	if m.forgets() {
		s.readBack(t)
	}
	for _, v := range victims {
		m.victims = append(m.victims, v.name)
	}
	s.faults = append(s.faults, m) // a failure reports it, in the middle of it too
	k.befall(s, t, victims)
	s.awaitReady(t)
	s.faults[len(s.faults)-1].to = time.Now()
}

// awaitObserved waits until all replicas have run something since the latest fault, so that they know the locks. A
// replica that does not may be the first to claim when Redis has forgotten: that is no promise of ours.
func (s *soak) awaitObserved(t *testing.T) {
	t.Helper()
	since := s.from
	if n := len(s.faults); n > 0 {
		since = s.faults[n-1].to
	}
	harness.Eventually(t, harness.StartTimeout, "run on each replica", func() bool {
		s.truth.read(t)
		by := map[string]bool{}
		for i := len(s.truth.runs) - 1; i >= 0 && s.truth.runs[i].Micros >= since.UnixMicro(); i-- {
			by[s.truth.runs[i].Replica] = true
		}
		return len(by) == len(s.seats)
	})
}

// between draws a time.
func (s *soak) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.random.Int64N(int64(most-least)))
}

func (s *soak) kill(t *testing.T, seats []*seat) {
	t.Helper()
	for _, v := range seats {
		v.Kill(t)
	}
	harness.Pass(t, time.Now().Add(s.between(0, 4*time.Second)))
	for _, v := range seats {
		s.revive(t, v)
	}
}

func (s *soak) restart(t *testing.T, seats []*seat) {
	t.Helper()
	for _, v := range seats {
		v.Term(t)
	}
	for _, v := range seats {
		v.WantDrained(t)
		s.revive(t, v)
	}
}

// freeze lasts longer than a lease.
func (s *soak) freeze(t *testing.T, seats []*seat) {
	t.Helper()
	for _, v := range seats {
		v.Stop(t)
	}
	harness.Pass(t, time.Now().Add(s.between(soakLease+time.Second/2, 2*soakLease)))
	for _, v := range seats {
		v.Cont(t)
	}
}

func (s *soak) killWardens(t *testing.T, seats []*seat) {
	t.Helper()
	killed := map[int]bool{}
	for _, v := range seats {
		pid := wardenOf(v.PID)
		killed[pid] = true
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("kill process %d, the warden of %s: %v", pid, v.name, err)
		}
	}
	for _, v := range seats {
		harness.Eventually(t, harness.StartTimeout, "new warden of "+v.name, func() bool {
			pid := wardenOf(v.PID)
			return pid != 0 && !killed[pid]
		})
	}
}

// wardenOf finds the warden among the children of a replica, 0 if there is none: it is the one that leads a session and runs
// the replica's own program.
func wardenOf(replica int) int {
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", replica))
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", replica))
	if err != nil {
		return 0
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread that has ended has no children
		for _, field := range strings.Fields(string(text)) {
			pid, _ := strconv.Atoi(field)
			exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			if session, err := unix.Getsid(pid); err == nil && session == pid && exe == program {
				return pid
			}
		}
	}
	return 0
}

// setClocks restarts replicas with clocks that are wrong until their next restart.
func (s *soak) setClocks(t *testing.T, seats []*seat) {
	t.Helper()
	for _, v := range seats {
		v.Kill(t)
		offset := s.between(-30*time.Second, 30*time.Second)
		s.revive(t, v, "CRONCLAVE_CLOCK_OFFSET="+offset.Round(time.Millisecond).String())
	}
}

// linksAre makes bad links of those of some seats, for less than a lease or more.
func linksAre(bad func() harness.Fault) func(*soak, *testing.T, []*seat) {
	return func(s *soak, t *testing.T, seats []*seat) {
		t.Helper()
		for _, v := range seats {
			v.link.Break(bad())
		}
		harness.Pass(t, time.Now().Add(s.between(time.Second, 2*soakLease)))
		for _, v := range seats {
			v.link.Mend()
		}
	}
}

func (s *soak) freezeRedis(t *testing.T, _ []*seat) {
	t.Helper()
	s.server.Pause()
	harness.Pass(t, time.Now().Add(2*time.Second))
	s.server.Unpause()
}

func (s *soak) killRedis(t *testing.T, _ []*seat) {
	t.Helper()
	s.startRedisAgain(t, harness.MemoryKept)
}

func (s *soak) emptyRedis(t *testing.T, _ []*seat) {
	t.Helper()
	s.startRedisAgain(t, harness.MemoryLost)
}

func (s *soak) startRedisAgain(t *testing.T, m harness.Memory) {
	t.Helper()
	s.server.Kill()
	s.faults[len(s.faults)-1].lost = time.Now()
	harness.Pass(t, time.Now().Add(s.between(0, 4*time.Second)))
	s.server.Start(m)
}

func (s *soak) flush(t *testing.T, _ []*seat) {
	t.Helper()
	harness.Must(t, s.Client.FlushAll(t.Context()).Err())
	s.faults[len(s.faults)-1].lost = time.Now()
}
