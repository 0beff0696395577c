package integration

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// trio is a master with two replicas, and three Sentinels that watch them: processes on this machine, since containers do not
// reach each other by the addresses under which this machine reaches them.
type trio struct {
	servers   []*redisServer // the first one begins as the master
	sentinels []*redisServer
	URL       string
}

// masterName is the master's name in the Sentinels.
const masterName = "main"

// mustProgram returns the source of servers that are processes.
func mustProgram(t *testing.T) redisProgram {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	source, err := programSource(ctx)
	if err != nil {
		t.Fatal("the tests of Sentinel and Cluster start redis-server themselves; install it (apt-get install redis-server), or run make test as root:", err)
	}
	return source.(redisProgram)
}

// persistent are the arguments of a server that keeps all that it has acknowledged.
var persistent = []string{"--save", "", "--appendonly", "yes", "--appendfsync", "everysec", "--repl-diskless-sync-delay", "0"}

// startTrio returns when each Sentinel knows the others and both replicas. at is the address of the master for Sentinels and
// replicas; nil leaves it as it is.
func startTrio(t *testing.T, at func(master string) string) *trio {
	t.Helper()
	program := mustProgram(t)
	s := &trio{servers: []*redisServer{startFrom(t, program, persistent)}}
	master := s.servers[0].instance.addr()
	if at != nil {
		master = at(master)
	}
	host, port, _ := strings.Cut(master, ":")
	for range 2 {
		s.servers = append(s.servers, startFrom(t, program, append(slices.Clone(persistent), "--replicaof", host, port)))
	}
	var addrs []string
	for range 3 {
		sentinel := startFrom(t, sentinelProgram{program, master}, []string{"--sentinel"})
		s.sentinels = append(s.sentinels, sentinel)
		addrs = append(addrs, sentinel.instance.addr())
	}
	s.URL = "redis-sentinel://" + strings.Join(addrs, ",") + "/" + masterName
	eventually(t, startTimeout, "agreement of the Sentinels", func() bool { return s.complete(t) })
	return s
}

// sentinelProgram makes Sentinels.
type sentinelProgram struct {
	redisProgram
	master string
}

func (s sentinelProgram) create(args []string) (redisInstance, error) {
	instance, err := s.redisProgram.create(args)
	if err != nil {
		return nil, err
	}
	host, port, _ := strings.Cut(s.master, ":")
	instance.(*redisProcess).file = fmt.Sprintf(`sentinel monitor %[1]s %[2]s %[3]s 2
sentinel down-after-milliseconds %[1]s 1500
sentinel failover-timeout %[1]s 5000
`, masterName, host, port)
	return instance, nil
}

// complete returns whether all Sentinels know all servers and each other, and the replicas follow.
func (s *trio) complete(t *testing.T) bool {
	for _, sentinel := range s.sentinels {
		m, err := ask(t, sentinel, "SENTINEL", "MASTER", masterName)
		if err != nil || m["num-slaves"] != "2" || m["num-other-sentinels"] != "2" || m["flags"] != "master" {
			return false
		}
	}
	return twoFollow(t, s.servers[0])
}

// twoFollow reports whether two replicas follow a master and are up to date.
func twoFollow(t *testing.T, master *redisServer) bool {
	info := replication(t, master)
	return info["connected_slaves"] == "2" && strings.Contains(info["slave0"], "state=online") && strings.Contains(info["slave1"], "state=online")
}

// ask returns a reply of names and values.
func ask(t *testing.T, s *redisServer, args ...any) (map[string]string, error) {
	t.Helper()
	cmd := redis.NewMapStringStringCmd(t.Context(), args...)
	err := s.Client.Process(t.Context(), cmd)
	return cmd.Val(), err
}

func replication(t *testing.T, s *redisServer) map[string]string {
	t.Helper()
	info, err := s.Client.InfoMap(t.Context(), "replication").Result()
	if err != nil {
		return nil
	}
	return info["Replication"]
}

// awaitFailover waits until all Sentinels name another master than the given one, and returns its server.
func (s *trio) awaitFailover(t *testing.T, old string) *redisServer {
	t.Helper()
	var now *redisServer
	eventually(t, startTimeout, "agreement on a new master", func() bool {
		named := s.named(t)
		i := slices.IndexFunc(s.servers, func(r *redisServer) bool { return r.instance.addr() == named })
		if i < 0 || named == old {
			return false
		}
		now = s.servers[i]
		return replication(t, now)["role"] == "master"
	})
	return now
}

// named is the address of the master by the word of all Sentinels; "" if they disagree.
func (s *trio) named(t *testing.T) string {
	t.Helper()
	all := map[string]bool{}
	for _, sentinel := range s.sentinels {
		m, err := ask(t, sentinel, "SENTINEL", "MASTER", masterName)
		if err != nil || strings.Contains(m["flags"], "failover_in_progress") {
			return ""
		}
		all[m["ip"]+":"+m["port"]] = true
	}
	if len(all) != 1 {
		return ""
	}
	for addr := range all {
		return addr
	}
	return ""
}

// everyTick are short jobs whose ticks may be late, and a long one whose lease outlasts a failover.
const everyTick = `
[defaults]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "30s"
lease = "4s"

[jobs.a]
[jobs.b]

[jobs.long]
schedule = "*/5 * * * * *"
command = 'exec "$SCRIBE" -for 3s -beat 20ms'
lease = "20s"
`

// A Sentinel failover loses no tick: those that wait for the new master run once and in order (P1, P3, P4, P5).
// Tokens go on growing, and the runs under way are not disturbed.
// Promise: P1, P3, P4, P5
func TestSentinelFailover(t *testing.T) {
	slow(t)
	t.Parallel()
	s := startTrio(t, nil)
	c := newClusterAt(t, s.URL, everyTick)
	replicas := c.startAll(t, 5)
	if e := replicas[0].WaitLog(t, soon, "announcement", announced); e["redis"] != s.URL+"/0" {
		t.Errorf("announced %v, want %s", e["redis"], s.URL+"/0")
	}
	first := max(c.awaitTick(t, soon, "a", 0).Tick, c.awaitTick(t, soon, "b", 0).Tick)
	c.awaitTick(t, soon, "a", first+2)
	run := c.awaitTick(t, soon, "long", first)
	c.await(t, soon, "long", "beat", func(l line) bool { return l.Event == "beat" && l.RunID == run.RunID })

	old := s.servers[0]
	old.Kill()
	killed := redisTime(t, c.Client)
	now := s.awaitFailover(t, old.instance.addr())
	back := redisTime(t, c.Client)
	old.Start(kept) // as a master, until the Sentinels reconfigure it
	last := back.Unix() + 4
	for _, job := range []string{"a", "b"} {
		c.awaitTick(t, startTimeout, job, last)
	}
	c.awaitTick(t, startTimeout, "long", last)
	c.await(t, soon, "long", "end", func(l line) bool { return l.Event == "end" && l.RunID == run.RunID })
	c.status(t) // finds the new master too
	checkNothingLost(t, c, []string{"a", "b"}, first, last, killed)
	stopAll(t, replicas)

	runs := starts(c.lines(t, ""))
	checkOnce(t, runs, 1)
	checkNotEarly(t, runs)
	c.checkTokensGrow(t, runs)
	checkAlone(t, c.lines(t, "long"))
	t.Logf("no master for %v, now %s; %d runs", back.Sub(killed).Round(time.Millisecond), now.instance.addr(), len(runs))
}

// checkNothingLost demands that each tick of short jobs ran, in order, and that the history says so. Excused are
//   - a tick that found a run in its slot: a slow one, or one of those that had waited for the return; or one
//     that was due when the server was gone and took its release with it, so that its slot is free only at the
//     end of its lease;
//   - the outcome in the history of a tick that was due when the server was gone, for the same reason.
//
// Ticks that were due while no master could grant them all ran: waiting ticks do not skip each other.
func checkNothingLost(t *testing.T, c *cluster, jobs []string, first, last int64, gone time.Time) {
	t.Helper()
	for _, job := range jobs {
		history := c.history(t, job)
		outcomes := outcomesOf(history)
		mine, skips := starts(c.lines(t, job)), int64(0)
		for tick := first; tick <= last; tick++ {
			ran := slices.ContainsFunc(mine, func(l line) bool { return l.Tick == tick })
			o := outcomes[tick]
			after := tick - gone.Unix()
			skipped := len(o) == 1 && o[0].verdict() == "skipped overlap" && !ran && after != 1
			told := len(o) == 1 && (o[0].Outcome == "ok" || o[0].Outcome == "running" && tick >= last-1)
			atRisk := after >= -2 && after <= 0
			if !(skipped && (after >= -1 || heldBy(history, tick))) && !(ran && (told || atRisk)) {
				t.Errorf("job %s, tick %d (%ds after the loss): ran %v, outcomes %+v", job, tick, after, ran, o)
			}
			if skipped {
				skips++
			}
		}
		if skips > (last-first+1)/2 {
			t.Errorf("job %s: %d of %d ticks were skipped", job, skips, last-first+1)
		}
		if !slices.IsSortedFunc(mine, func(a, b line) int { return int(a.Tick - b.Tick) }) {
			t.Errorf("ticks ran out of order:\n%s", text(mine))
		}
	}
}

var masterKills = flag.Int("master-kills", 3, "how many masters TestMastersAreKilledOneAfterTheOther kills")

// With an acknowledged replica no kill of a master loses a tick that no replica has started, though many a grant is not heard of (P5).
// Promise: P1, P3, P4, P5
func TestMastersAreKilledOneAfterTheOther(t *testing.T) {
	slow(t)
	t.Parallel()
	s := startTrio(t, nil)
	c := newClusterAt(t, s.URL, "[redis]\nacked_replicas = 1\n[history]\nruns = 1000\n"+shortJobs)
	replicas := c.startAll(t, 3)
	jobs := []string{"a", "b"}
	first := max(c.awaitTick(t, soon, "a", 0).Tick, c.awaitTick(t, soon, "b", 0).Tick)
	var kills []time.Time
	master, random := s.servers[0], newRandom(t)
	for range *masterKills {
		old := master
		due := redisTime(t, c.Client).Truncate(time.Second).Add(2 * time.Second)
		awaitTime(t, c.Client, due.Add(time.Duration(random.IntN(30))*time.Millisecond)) // while the claims are under way
		old.Kill()
		killed := redisTime(t, c.Client)
		kills = append(kills, killed)
		master = s.awaitFailover(t, old.instance.addr())
		old.Start(kept)
		eventually(t, startTimeout, "two replicas that follow", func() bool { return twoFollow(t, master) })
		back := redisTime(t, c.Client).Unix()
		for _, job := range jobs {
			c.awaitTick(t, startTimeout, job, back+3)
		}
	}
	last := redisTime(t, c.Client).Unix() - 3
	stopAll(t, replicas)

	runs := starts(c.lines(t, ""))
	checkOnce(t, runs, 1)
	checkNotEarly(t, runs)
	c.checkTokensGrow(t, runs)
	near := func(tick, after int64) bool { // a kill
		return slices.ContainsFunc(kills, func(k time.Time) bool { return tick >= k.Unix()-2 && tick <= k.Unix()+after })
	}
	const leaseOfAKilledRelease = 4 // seconds: a slot whose release was lost is free at the end of its lease
	skips := 0
	for _, job := range jobs {
		history := c.history(t, job)
		outcomes := outcomesOf(history)
		mine := starts(c.lines(t, job))
		for tick := first; tick <= last; tick++ {
			ran := slices.ContainsFunc(mine, func(l line) bool { return l.Tick == tick })
			o := outcomes[tick]
			skipped := len(o) == 1 && o[0].verdict() == "skipped overlap"
			switch {
			case ran && (len(o) == 1 && o[0].Outcome == "ok" || near(tick, 1)):
			case skipped && (near(tick, leaseOfAKilledRelease) || heldBy(history, tick)):
				skips++
			default:
				t.Errorf("job %s, tick %d: ran %t, outcomes %+v", job, tick, ran, o)
			}
		}
	}
	t.Logf("%d kills, %d ticks, %d skipped since another held the slot, %d claimed anew", len(kills), 2*(last-first+1), skips, len(c.claimedAnew()))
}

// shortJobs are jobs whose ticks may be late, with a lease that outlasts no failover.
const shortJobs = `
[defaults]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "1m"
lease = "3s"

[jobs.a]
[jobs.b]
`

// heldBy returns whether a run of an earlier tick was about in the slot of a job when a tick was due.
func heldBy(history []pastRun, tick int64) bool {
	const margin = time.Second // the time to claim, and that of a release
	at := time.Unix(tick, 0)
	return slices.ContainsFunc(history, func(o pastRun) bool {
		return o.Tick.Before(at) && !o.Started.IsZero() && !at.Before(o.Started.Add(-margin)) && (o.Finished.IsZero() || !at.After(o.Finished.Add(margin)))
	})
}
