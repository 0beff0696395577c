package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cronclave/cronclave/locking"
)

// The commands under a lock are scribes: the lock's name is their job, and a name of the test's their replica. Both
// are handed on to them by the environment, as to the command of a job that takes a lock itself.

// lock starts `cronclave lock` with a scribe as its command, and returns at once.
func (c *cluster) lock(t *testing.T, who, name string, flags []string, scribe ...string) *replica {
	t.Helper()
	args := slices.Concat([]string{"lock"}, flags, []string{"--namespace", c.Namespace})
	if !slices.Contains(flags, "--pool") {
		args = append(args, name)
	}
	args = slices.Concat(args, []string{"--", absolute(t, program(t, scribeProgram))}, scribe)
	return startObserved(t, who, "", []string{
		"CRONCLAVE_REDIS=" + c.url, "CRONCLAVE_CONFIG=" + c.path, quickExit,
		"SCRIBE_FILE=" + c.chronicle.path, "SCRIBE_REDIS=" + c.Client.Options().Addr,
		"CRONCLAVE_JOB=" + name, "CRONCLAVE_REPLICA=" + who, "CRONCLAVE_TICK_UNIX=0", "CRONCLAVE_ATTEMPT=1",
	}, program(t, cronclaveProgram), args...)
}

// wantEnd waits for the end of a lock, and demands its exit code and a text on its stderr; nothing is said if that is "".
func (r *replica) wantEnd(t *testing.T, within time.Duration, code int, said string) {
	t.Helper()
	got := r.Wait(t, within)
	text := strings.Join(r.Log(), "\n")
	if got != code || !strings.Contains(text, said) || said == "" && text != "" {
		t.Errorf("%s: exit code %d, want %d and %q in\n%s", r.Name, got, code, said, text)
	}
}

// awaitHolder waits until the command of one that asked for a lock has started.
func (c *cluster) awaitHolder(t *testing.T, who, name string) line {
	t.Helper()
	return c.await(t, soon, name, "start by "+who, func(l line) bool { return l.Event == "start" && l.Replica == who })
}

// lockEnd is when the lease of a lock's slot ends, as Redis has it.
func (c *cluster) lockEnd(t *testing.T, name string) time.Time {
	t.Helper()
	micros, err := c.Client.HGet(t.Context(), c.lockKey(name), "e0").Int64()
	if err != nil {
		t.Fatalf("lock %s: %v", name, err)
	}
	return time.UnixMicro(micros)
}

func (c *cluster) lockKey(name string) string {
	return fmt.Sprintf("cronclave:%s:{%s}:lock", c.Namespace, name)
}

// forever is a command that ends by a signal only.
var forever = []string{"-for", "5m", "-beat", "20ms"}

// Commands under one lock exclude each other.
// Promise: P3
func TestLockHasOneHolder(t *testing.T) {
	t.Parallel()
	checkOneHolder(t, newCluster(t, ""))
}

// checkOneHolder has one client that holds a lock, one that waits, and others.
func checkOneHolder(t *testing.T, c *cluster) {
	t.Helper()
	first := c.lock(t, "first", "deploy", nil, forever...)
	held := c.awaitHolder(t, "first", "deploy")
	c.lock(t, "second", "deploy", nil).wantEnd(t, soon, 75, fmt.Sprintf("(pid %d)", first.PID))
	c.lock(t, "third", "deploy", []string{"-E", "9", "--wait", "300ms"}).wantEnd(t, soon, 9, "lock deploy: not acquired after ")
	c.lock(t, "other", "elsewhere", nil).wantEnd(t, soon, 0, "")
	patient := c.lock(t, "patient", "deploy", []string{"--wait", "forever"})
	first.Term(t)
	first.wantEnd(t, soon, 143, "")
	patient.wantEnd(t, soon, 0, "")
	lines := c.lines(t, "deploy")
	checkAlone(t, lines)
	runs := starts(lines)
	if len(runs) != 2 || runs[1].Replica != "patient" || runs[1].Token <= held.Token {
		t.Errorf("want one run after the other, with a greater token:\n%s", text(runs))
	}
}

// Commands that wait in line get the lock in order, also with others beside the line.
func TestLockInLine(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "")
	first := c.lock(t, "holder", "line", nil, forever...)
	c.awaitHolder(t, "holder", "line")
	var line []*replica
	for i, who := range []string{"w1", "w2", "w3"} {
		line = append(line, c.lock(t, who, "line", []string{"--fair", "--wait", "5m"}, "-for", "300ms"))
		eventually(t, soon, "place in line", func() bool {
			n, err := c.Client.ZCard(t.Context(), c.lockKey("line")+":queue").Result()
			return err == nil && n == int64(i+1)
		})
	}
	gaveUp := c.lock(t, "hasty", "line", []string{"--fair", "--wait", "2s"})
	gaveUp.wantEnd(t, soon, 75, "held by ")
	beside := c.lock(t, "beside", "line", []string{"--wait", "5m"})
	first.Term(t)
	for _, r := range append(line, beside) {
		r.wantEnd(t, soon, 0, "")
	}
	lines := c.lines(t, "line")
	checkAlone(t, lines)
	var order []string
	for _, l := range starts(lines) {
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
	checkSlotsAndPools(t, newCluster(t, warehouse))
}

const warehouse = "[pools.warehouse]\nslots = 2\n"

func checkSlotsAndPools(t *testing.T, c *cluster) {
	t.Helper()
	for name, flags := range map[string][]string{"gate": {"--slots", "2"}, "warehouse": {"--pool", "warehouse"}} {
		one, two := c.lock(t, "one", name, flags, forever...), c.lock(t, "two", name, flags, forever...)
		a, b := c.awaitHolder(t, "one", name), c.awaitHolder(t, "two", name)
		if a.Slot+b.Slot != 1 || a.Slots != 2 || b.Slots != 2 || a.Token == b.Token {
			t.Errorf("want slots 0 and 1 of 2:\n%s", text([]line{a, b}))
		}
		c.lock(t, "three", name, flags).wantEnd(t, soon, 75, "all 2 slots are held")
		if name == "gate" {
			c.lock(t, "four", name, []string{"--slots", "3"}).wantEnd(t, soon, 2, "another number of slots than 3")
		}
		one.Term(t)
		one.wantEnd(t, soon, 143, "")
		c.lock(t, "five", name, append(flags, "--wait", "1m")).wantEnd(t, soon, 0, "")
		two.Kill(t)
		checkAtMost(t, c.lines(t, name), 2)
	}
}

// A lock passes signals on to its command, also repeated ones. The command does not end by them, and has a child.
func TestLockPassesSignalsOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "")
	r := c.lock(t, "r", "signals", nil, append([]string{"-ignore-term", "-child"}, forever...)...)
	first := c.awaitHolder(t, "r", "signals")
	eventually(t, soon, "child", func() bool {
		return slices.ContainsFunc(c.lines(t, "signals"), func(l line) bool { return l.PID != first.PID })
	})
	for n := 1; n <= 2; n++ {
		r.Term(t)
		eventually(t, soon, "SIGTERM at both processes", func() bool { return len(event("term", c.lines(t, "signals"))) == 2*n })
	}
	r.signal(t, syscall.SIGINT) // which a scribe does not catch
	r.wantEnd(t, soon, 130, "")
	awaitDead(t, c.lines(t, "signals"))
}

// A lock that is killed leaves no process (P7). Its command is a tree of three processes, one of them in a session of
// its own.
// Promise: P7
func TestKilledLockLeavesNothing(t *testing.T) {
	t.Parallel()
	const promised = time.Second
	c := newCluster(t, "")
	r := c.lock(t, "r", "killed", nil, append([]string{"-ignore-term", "-child", "-far"}, forever...)...)
	eventually(t, soon, "whole family", func() bool {
		pids := map[int]bool{}
		for _, l := range c.lines(t, "killed") {
			pids[l.PID] = true
		}
		return len(pids) == 3
	})
	killed := redisTime(t, c.Client)
	r.Kill(t)
	awaitDead(t, c.lines(t, "killed"))
	lived := latest(c.lines(t, "killed")).Sub(killed)
	t.Logf("the last word came %v after the kill", lived.Round(time.Millisecond))
	if lived > promised+slack {
		t.Errorf("the last word came %v after the kill", lived)
	}
}

// A lock that is frozen for longer than its lease loses its command before the lease ends (P3, P4).
// Promise: P3, P4
func TestFrozenLockLosesItsCommand(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "")
	r := c.lock(t, "frozen", "ice", []string{"--lease", "4s"}, append([]string{"-ignore-term", "-child"}, forever...)...)
	first := c.awaitHolder(t, "frozen", "ice")
	r.Stop(t)
	eventually(t, soon, "frozen lock", func() bool { return strings.Contains(processState(r.PID), "T") })
	end := c.lockEnd(t, "ice")
	next := c.lock(t, "next", "ice", []string{"--wait", "1m", "--fair"}, "-for", "100ms")
	second := c.awaitHolder(t, "next", "ice")
	mine := of(first.RunID, c.lines(t, "ice"))
	if i := slices.IndexFunc(mine, func(l line) bool { return !over(l.PID) }); i >= 0 {
		t.Errorf("process %d is alive when the next command starts", mine[i].PID)
	}
	if dead := latest(mine); !dead.Before(end) {
		t.Errorf("its processes wrote %v after the lease's end", dead.Sub(end))
	}
	if second.At().Before(end) || second.Token <= first.Token {
		t.Errorf("want the next one after %v, with a greater token:\n%s", end, text([]line{first, second}))
	}
	r.Cont(t)
	r.wantEnd(t, soon, 76, "lock ice: lease lost")
	next.wantEnd(t, soon, 0, "")
	checkAlone(t, c.lines(t, "ice"))
}

// A lock ends its command before its lease when Redis is away for longer (P3).
// Promise: P3
func TestLockWithoutRedis(t *testing.T) {
	slow(t)
	t.Parallel()
	s := startRedis(t, redisOpts{})
	c := newClusterOn(t, s, "")
	c.lock(t, "short", "away", []string{"--lease", "3s"}).wantEnd(t, soon, 0, "")
	r := c.lock(t, "r", "away", []string{"--lease", "6s"}, append([]string{"-ignore-term", "-child"}, forever...)...)
	first := c.awaitHolder(t, "r", "away")
	before := c.lockEnd(t, "away")
	eventually(t, soon, "renewal", func() bool { return c.lockEnd(t, "away").After(before) })
	end, lines := c.lockEnd(t, "away"), c.lines(t, "away")
	s.Pause() // before the next renewal, which is due two seconds after the latest
	latest := lines[len(lines)-1]
	endMono := latest.Mono + end.UnixMicro() - latest.Micros // the same instant by the machine's clock
	r.wantEnd(t, soon, 76, "lock away: lease lost: not renewed in time")
	if late := time.Duration(monotonic(t)-endMono) * time.Microsecond; late > 2*time.Second { // it would be four where it said good-bye to Redis
		t.Errorf("it ended %v after the lease", late)
	}
	for _, l := range of(first.RunID, c.lines(t, "away")) {
		if l.Mono >= endMono {
			t.Errorf("it wrote after the lease's end at %dµs: %v", endMono, l)
		}
		if !over(l.PID) {
			t.Errorf("process %d is alive after the end of the lock", l.PID)
		}
	}
	c.lock(t, "late", "away", []string{"--wait", "100ms"}).wantEnd(t, soon, 69, "can't be reached")
	s.Unpause()
	c.lock(t, "again", "away", []string{"--wait", "1m"}).wantEnd(t, soon, 0, "")
	second := c.awaitHolder(t, "again", "away")
	if second.Token <= first.Token {
		t.Errorf("the token did not grow:\n%s", text([]line{first, second}))
	}
}

// A lock whose command had to end releases a lease that was renewed after all. Redis is away until the command is
// told to end, six seconds before the end of the lease, and back before it is killed, one second before. The next
// client need not wait for the end of the lease.
func TestLockIsGivenBackWhereItWasRenewedAfterAll(t *testing.T) {
	slow(t)
	t.Parallel()
	s := startRedis(t, redisOpts{})
	c := newClusterOn(t, s, "")
	r := c.lock(t, "r", "back", []string{"--lease", "20s"}, "-ignore-term", "-for", "30s")
	c.awaitHolder(t, "r", "back")
	before := c.lockEnd(t, "back")
	eventually(t, soon, "renewal", func() bool { return c.lockEnd(t, "back").After(before) })
	back := c.lockEnd(t, "back").Add(-3500 * time.Millisecond)
	s.Pause()
	<-time.After(time.Until(back)) // its clock is this machine's
	s.Unpause()
	r.wantEnd(t, 2*soon, 76, "lock back: lease lost: not renewed in time")
	c.lock(t, "next", "back", []string{"--wait", "5s"}).wantEnd(t, soon, 0, "")
	checkAlone(t, c.lines(t, "back"))
}

// The command under a lock does not see the settings and secrets of cronclave.
func TestLockKeepsItsSecrets(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "")
	env := []string{"CRONCLAVE_REDIS=" + c.url, "CRONCLAVE_SECRET=" + secret, "PLAIN=plain"}
	said := runCommand(t, env, "lock", "a", "--namespace", c.Namespace, "--", "env")
	said.want(t, 0, "PLAIN=plain")
	got := map[string]string{}
	for _, l := range strings.Split(said.stdout, "\n") {
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
	c := newCluster(t, "")
	locks, err := locking.New(locking.Config{Redis: c.Client, Prefix: "cronclave:" + c.Namespace + ":", Owner: "a program", Timeout: patience})
	must(t, err)
	defer locks.Close()
	deploy, reports := locks.Mutex("{deploy}:lock"), locks.Semaphore("{reports}:lock", 2)

	lease := must1(deploy.Lock(t.Context()))(t)
	slot := must1(reports.Acquire(t.Context()))(t)
	c.lock(t, "refused", "deploy", nil).wantEnd(t, soon, 75, "held by a program")
	c.lock(t, "beside", "reports", []string{"--slots", "2"}).wantEnd(t, soon, 0, "")
	must(t, lease.Release(t.Context()))
	must(t, slot.Release(t.Context()))

	r := c.lock(t, "command", "deploy", nil, forever...)
	c.awaitHolder(t, "command", "deploy")
	if _, ok, err := deploy.TryLock(t.Context()); ok || err != nil {
		t.Errorf("beside a command: %v, %v", ok, err)
	}
	r.Term(t)
	r.wantEnd(t, soon, 143, "")
}
