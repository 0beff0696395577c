package locks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking"
)

// Commands under one lock exclude each other.
// Promise: P3
func TestLockHasOneHolder(t *testing.T) {
	t.Parallel()
	checkOneHolder(t, harness.NewCluster(t, ""))
}

// checkOneHolder has one client that holds a lock, one that waits, and others.
func checkOneHolder(t *testing.T, c *harness.Cluster) {
	t.Helper()
	first := c.Lock(t, "first", "deploy", nil, harness.Forever...)
	held := c.AwaitHolder(t, "first", "deploy")
	c.Lock(t, "second", "deploy", nil).WantEnd(t, harness.Soon, 75, fmt.Sprintf("(pid %d)", first.PID))
	c.Lock(t, "third", "deploy", []string{"-E", "9", "--wait", "300ms"}).WantEnd(t, harness.Soon, 9, "lock deploy: not acquired after ")
	c.Lock(t, "other", "elsewhere", nil).WantEnd(t, harness.Soon, 0, "")
	patient := c.Lock(t, "patient", "deploy", []string{"--wait", "forever"})
	first.Term(t)
	first.WantEnd(t, harness.Soon, 143, "")
	patient.WantEnd(t, harness.Soon, 0, "")
	lines := c.Lines(t, "deploy")
	harness.CheckAlone(t, lines)
	runs := harness.Starts(lines)
	if len(runs) != 2 || runs[1].Replica != "patient" || runs[1].Token <= held.Token {
		t.Errorf("want one run after the other, with a greater token:\n%s", harness.TextOf(runs))
	}
}

// Commands that wait in line get the lock in order, also with others beside the line.
func TestLockInLine(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, "")
	first := c.Lock(t, "holder", "line", nil, harness.Forever...)
	c.AwaitHolder(t, "holder", "line")
	var line []*harness.Replica
	for i, who := range []string{"w1", "w2", "w3"} {
		line = append(line, c.Lock(t, who, "line", []string{"--fair", "--wait", "5m"}, "-for", "300ms"))
		harness.Eventually(t, harness.Soon, "place in line", func() bool {
			n, err := c.Client.ZCard(t.Context(), c.LockKey("line")+":queue").Result()
			return err == nil && n == int64(i+1)
		})
	}
	gaveUp := c.Lock(t, "hasty", "line", []string{"--fair", "--wait", "2s"})
	gaveUp.WantEnd(t, harness.Soon, 75, "held by ")
	beside := c.Lock(t, "beside", "line", []string{"--wait", "5m"})
	first.Term(t)
	for _, r := range append(line, beside) {
		r.WantEnd(t, harness.Soon, 0, "")
	}
	lines := c.Lines(t, "line")
	harness.CheckAlone(t, lines)
	var order []string
	for _, l := range harness.Starts(lines) {
		order = append(order, l.Replica)
	}
	if got := strings.Join(order, " "); got != "holder w1 w2 w3 beside" {
		t.Errorf("the order was %s", got)
	}
}

// The slots of a lock and of a pool bound the commands under them.
// Promise: P3
func TestLockSlotsAndPools(t *testing.T) {
	t.Parallel()
	checkSlotsAndPools(t, harness.NewCluster(t, warehouse))
}

const warehouse = "[pools.warehouse]\nslots = 2\n"

func checkSlotsAndPools(t *testing.T, c *harness.Cluster) {
	t.Helper()
	for name, flags := range map[string][]string{"gate": {"--slots", "2"}, "warehouse": {"--pool", "warehouse"}} {
		one, two := c.Lock(t, "one", name, flags, harness.Forever...), c.Lock(t, "two", name, flags, harness.Forever...)
		a, b := c.AwaitHolder(t, "one", name), c.AwaitHolder(t, "two", name)
		if a.Slot+b.Slot != 1 || a.Slots != 2 || b.Slots != 2 || a.Token == b.Token {
			t.Errorf("want slots 0 and 1 of 2:\n%s", harness.TextOf([]harness.Line{a, b}))
		}
		c.Lock(t, "three", name, flags).WantEnd(t, harness.Soon, 75, "all 2 slots are held")
		if name == "gate" {
			c.Lock(t, "four", name, []string{"--slots", "3"}).WantEnd(t, harness.Soon, 2, "another number of slots than 3")
		}
		one.Term(t)
		one.WantEnd(t, harness.Soon, 143, "")
		c.Lock(t, "five", name, append(flags, "--wait", "1m")).WantEnd(t, harness.Soon, 0, "")
		two.Kill(t)
		harness.CheckAtMost(t, c.Lines(t, name), 2)
	}
}

// A lock passes signals on to its command, also repeated ones. The command does not end by them, and has a child.
func TestLockPassesSignalsOn(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t, "")
	r := c.Lock(t, "r", "signals", nil, append([]string{"-ignore-term", "-child"}, harness.Forever...)...)
	first := c.AwaitHolder(t, "r", "signals")
	harness.Eventually(t, harness.Soon, "child", func() bool {
		return slices.ContainsFunc(c.Lines(t, "signals"), func(l harness.Line) bool { return l.PID != first.PID })
	})
	for n := 1; n <= 2; n++ {
		r.Term(t)
		harness.Eventually(t, harness.Soon, "SIGTERM at both processes", func() bool { return len(harness.LinesOf("term", c.Lines(t, "signals"))) == 2*n })
	}
	r.Signal(t, syscall.SIGINT) // which a scribe does not catch
	r.WantEnd(t, harness.Soon, 130, "")
	harness.AwaitDead(t, c.Lines(t, "signals"))
}

// A lock that is killed leaves no process (P7). Its command is a tree of three processes, one of them in a session of
// its own.
// Promise: P7
func TestKilledLockLeavesNothing(t *testing.T) {
	t.Parallel()
	const promised = time.Second
	c := harness.NewCluster(t, "")
	r := c.Lock(t, "r", "killed", nil, append([]string{"-ignore-term", "-child", "-far"}, harness.Forever...)...)
	harness.Eventually(t, harness.Soon, "whole family", func() bool {
		pids := map[int]bool{}
		for _, l := range c.Lines(t, "killed") {
			pids[l.PID] = true
		}
		return len(pids) == 3
	})
	killed := harness.RedisTime(t, c.Client)
	r.Kill(t)
	harness.AwaitDead(t, c.Lines(t, "killed"))
	lived := harness.LatestAt(c.Lines(t, "killed")).Sub(killed)
	t.Logf("the last word came %v after the kill", lived.Round(time.Millisecond))
	if lived > promised+harness.Slack {
		t.Errorf("the last word came %v after the kill", lived)
	}
}

// A lock that is frozen for longer than its lease loses its command before the lease ends (P3, P4).
// Promise: P3, P4
func TestFrozenLockLosesItsCommand(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t, "")
	r := c.Lock(t, "frozen", "ice", []string{"--lease", "4s"}, append([]string{"-ignore-term", "-child"}, harness.Forever...)...)
	first := c.AwaitHolder(t, "frozen", "ice")
	r.Stop(t)
	harness.Eventually(t, harness.Soon, "frozen lock", func() bool { return strings.Contains(harness.ProcessState(r.PID), "T") })
	end := c.LockEnd(t, "ice")
	next := c.Lock(t, "next", "ice", []string{"--wait", "1m", "--fair"}, "-for", "100ms")
	second := c.AwaitHolder(t, "next", "ice")
	mine := harness.RunLines(first.RunID, c.Lines(t, "ice"))
	if i := slices.IndexFunc(mine, func(l harness.Line) bool { return !harness.HasEnded(l.PID) }); i >= 0 {
		t.Errorf("process %d is alive when the next command starts", mine[i].PID)
	}
	if dead := harness.LatestAt(mine); !dead.Before(end) {
		t.Errorf("its processes wrote %v after the lease's end", dead.Sub(end))
	}
	if second.At().Before(end) || second.Token <= first.Token {
		t.Errorf("want the next one after %v, with a greater token:\n%s", end, harness.TextOf([]harness.Line{first, second}))
	}
	r.Cont(t)
	r.WantEnd(t, harness.Soon, 76, "lock ice: lease lost")
	next.WantEnd(t, harness.Soon, 0, "")
	harness.CheckAlone(t, c.Lines(t, "ice"))
}

// A lock ends its command before its lease when Redis is away for longer (P3).
// Promise: P3
func TestLockWithoutRedis(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartRedis(t, harness.RedisOpts{})
	c := harness.NewClusterOn(t, s, "")
	c.Lock(t, "short", "away", []string{"--lease", "3s"}).WantEnd(t, harness.Soon, 0, "")
	r := c.Lock(t, "r", "away", []string{"--lease", "6s"}, append([]string{"-ignore-term", "-child"}, harness.Forever...)...)
	first := c.AwaitHolder(t, "r", "away")
	before := c.LockEnd(t, "away")
	harness.Eventually(t, harness.Soon, "renewal", func() bool { return c.LockEnd(t, "away").After(before) })
	end, lines := c.LockEnd(t, "away"), c.Lines(t, "away")
	s.Pause() // before the next renewal, which is due two seconds after the latest
	latest := lines[len(lines)-1]
	endMono := latest.Mono + end.UnixMicro() - latest.Micros // the same instant by the machine's clock
	r.WantEnd(t, harness.Soon, 76, "lock away: lease lost: not renewed in time")
	if late := time.Duration(harness.Monotonic(t)-endMono) * time.Microsecond; late > 2*time.Second { // it would be four where it said good-bye to Redis
		t.Errorf("it ended %v after the lease", late)
	}
	for _, l := range harness.RunLines(first.RunID, c.Lines(t, "away")) {
		if l.Mono >= endMono {
			t.Errorf("it wrote after the lease's end at %dµs: %v", endMono, l)
		}
		if !harness.HasEnded(l.PID) {
			t.Errorf("process %d is alive after the end of the lock", l.PID)
		}
	}
	c.Lock(t, "late", "away", []string{"--wait", "100ms"}).WantEnd(t, harness.Soon, 69, "can't be reached")
	s.Unpause()
	c.Lock(t, "again", "away", []string{"--wait", "1m"}).WantEnd(t, harness.Soon, 0, "")
	second := c.AwaitHolder(t, "again", "away")
	if second.Token <= first.Token {
		t.Errorf("the token did not grow:\n%s", harness.TextOf([]harness.Line{first, second}))
	}
}

// A lock whose command had to end releases a lease that was renewed after all. Redis is away until the command is
// told to end, six seconds before the end of the lease, and back before it is killed, one second before. The next
// client need not wait for the end of the lease.
func TestLockIsGivenBackWhereItWasRenewedAfterAll(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartRedis(t, harness.RedisOpts{})
	c := harness.NewClusterOn(t, s, "")
	r := c.Lock(t, "r", "back", []string{"--lease", "20s"}, "-ignore-term", "-for", "30s")
	c.AwaitHolder(t, "r", "back")
	before := c.LockEnd(t, "back")
	harness.Eventually(t, harness.Soon, "renewal", func() bool { return c.LockEnd(t, "back").After(before) })
	back := c.LockEnd(t, "back").Add(-3500 * time.Millisecond)
	s.Pause()
	<-time.After(time.Until(back)) // its clock is this machine's
	s.Unpause()
	r.WantEnd(t, 2*harness.Soon, 76, "lock back: lease lost: not renewed in time")
	c.Lock(t, "next", "back", []string{"--wait", "5s"}).WantEnd(t, harness.Soon, 0, "")
	harness.CheckAlone(t, c.Lines(t, "back"))
}

// The command under a lock does not see the settings and secrets of cronclave.
func TestLockKeepsItsSecrets(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t, "")
	env := []string{"CRONCLAVE_REDIS=" + c.URL, "CRONCLAVE_SECRET=" + harness.Secret, "PLAIN=plain"}
	said := harness.RunCommand(t, env, "lock", "a", "--namespace", c.Namespace, "--", "env")
	said.Want(t, 0, "PLAIN=plain")
	got := map[string]string{}
	for _, l := range strings.Split(said.Stdout, "\n") {
		name, value, _ := strings.Cut(l, "=")
		got[name] = value
	}
	if _, err := strconv.ParseInt(got["CRONCLAVE_FENCING_TOKEN"], 10, 64); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"CRONCLAVE_LOCK": "a", "CRONCLAVE_SLOT": "0", "CRONCLAVE_SLOTS": "1", "CRONCLAVE_REDIS": "", "CRONCLAVE_SECRET": ""} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

// A Go program and a command share a lock by the name in docs/locks.md.
func TestLockIsSharedWithTheLibrary(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t, "")
	locks, err := locking.New(locking.Config{Redis: c.Client, Prefix: "cronclave:" + c.Namespace + ":", Owner: "a program", Timeout: harness.Patience})
	harness.Must(t, err)
	defer locks.Close()
	deploy, reports := locks.Mutex("{deploy}:lock"), locks.Semaphore("{reports}:lock", 2)

	lease := harness.Must1(deploy.Lock(t.Context()))(t)
	slot := harness.Must1(reports.Acquire(t.Context()))(t)
	c.Lock(t, "refused", "deploy", nil).WantEnd(t, harness.Soon, 75, "held by a program")
	c.Lock(t, "beside", "reports", []string{"--slots", "2"}).WantEnd(t, harness.Soon, 0, "")
	harness.Must(t, lease.Release(t.Context()))
	harness.Must(t, slot.Release(t.Context()))

	r := c.Lock(t, "command", "deploy", nil, harness.Forever...)
	c.AwaitHolder(t, "command", "deploy")
	if _, ok, err := deploy.TryLock(t.Context()); ok || err != nil {
		t.Errorf("beside a command: %v, %v", ok, err)
	}
	r.Term(t)
	r.WantEnd(t, harness.Soon, 143, "")
}
