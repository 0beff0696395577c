package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// addReplicas gives each master a replica, and returns when these have all that it has.
func (c *shards) addReplicas(t *testing.T) {
	t.Helper()
	masters := slices.Clone(c.nodes)
	var replicas []*redisServer
	for range masters {
		r := startNode(t)
		c.join(t, r)
		replicas = append(replicas, r)
	}
	c.awaitWhole(t)
	for i, m := range masters {
		id := c.id(t, m)
		eventually(t, startTimeout, "master that its replica knows", func() bool { return replicas[i].Client.ClusterReplicate(t.Context(), id).Err() == nil })
	}
	eventually(t, startTimeout, "replicas of all masters", func() bool {
		return !slices.ContainsFunc(masters, func(m *redisServer) bool { return !strings.Contains(replication(t, m)["slave0"], "state=online") })
	})
}

// nameOn is a job's name that leads to a node.
func (c *shards) nameOn(t *testing.T, n *redisServer, prefix string) string {
	t.Helper()
	for i := 0; ; i++ {
		name := fmt.Sprint(prefix, i)
		if c.owner(t, c.slot(t, name)) == n {
			return name
		}
	}
}

func (c *shards) slot(t *testing.T, job string) int {
	t.Helper()
	return int(must1(c.nodes[0].Client.ClusterKeySlot(t.Context(), job).Result())(t))
}

// awaitTakeOver waits until another node has a slot, and the Cluster serves again.
func (c *shards) awaitTakeOver(t *testing.T, slot int, old *redisServer) {
	t.Helper()
	eventually(t, startTimeout, "replica that takes over", func() bool {
		info, err := c.nodes[0].Client.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok") && c.owner(t, slot) != old
	})
}

// requestJobs are of all kinds: a chain, one that people ask for, one that goes on until it is canceled, one that is replaced, one that is recovered, one that
// is paused, and two that share a pool. Names in parentheses depend on the node that has the job.
const requestJobs = `
[replica]
drain_timeout = "1s"

[history]
runs = 2000

[defaults]
schedule = "0 0 31 12 *"
lease = "4s"
start_deadline = "1m"

[jobs.(extract)]
schedule = "*/2 * * * * *"
command = '"$SCRIBE" -for 50ms; test $((CRONCLAVE_TICK_UNIX % 6)) != 0'

[jobs.(load)]
after = ["(extract)"]
command = '"$SCRIBE" -for 100ms'

[jobs.(asked)]
command = 'CRONCLAVE_TICK_UNIX=0 "$SCRIBE"; echo begins $CRONCLAVE_RUN_ID; while ! test -e (gate); do sleep 0.05; done; echo ends $CRONCLAVE_RUN_ID; exit 7'
lease = "1m"

[jobs.(endless)]
command = 'CRONCLAVE_TICK_UNIX=0 exec "$SCRIBE" -for 5m'
lease = "1m"

[jobs.(daily)]
schedule = "0 3 * * *"
command = 'echo "$CRONCLAVE_TICK" "$CRONCLAVE_TRIGGER"'

[jobs.(replaced)]
schedule = "*/4 * * * * *"
command = 'exec "$SCRIBE" -for 5m'
overlap = "replace"
start_deadline = "auto"

[jobs.(frail)]
schedule = "*/5 * * * * *"
command = 'test "$CRONCLAVE_ATTEMPT" = 1 && test -e (hold) && exec "$SCRIBE" -for 5m; exec "$SCRIBE"'
recover = { max = 100 }
lease = "3s"

[jobs.(paused)]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
tags = ["db"]

[pools.warehouse]
slots = 1

[jobs.(pooled)]
schedule = "*/3 * * * * *"
command = 'exec "$SCRIBE" -for 300ms -beat 20ms'
pool = "warehouse"

[jobs.(shares)]
schedule = "*/3 * * * * *"
command = 'exec "$SCRIBE" -for 300ms -beat 20ms'
pool = "warehouse"
`

// requestCluster is a cluster with these jobs, and the faults that befall it.
type requestCluster struct {
	*cluster
	gate     string            // a file that has (asked) end
	hold     string            // one that has first attempts of (frail) go on
	jobs     map[string]string // the names of jobs
	replicas map[string]*replica
	started  int
	killed   map[string]time.Time // replicas, and when
	pauses   [][2]int64           // of (paused), microseconds
	away     [2]time.Time         // when a master was gone
}

// newRequestCluster puts the jobs on masters: child and parent are apart.
func newRequestCluster(t *testing.T, nodes map[string]*redisServer, s *shards) *requestCluster {
	t.Helper()
	k := &requestCluster{gate: filepath.Join(t.TempDir(), "gate"), hold: filepath.Join(t.TempDir(), "hold"), jobs: map[string]string{},
		replicas: map[string]*replica{}, killed: map[string]time.Time{}}
	words := []string{"(gate)", k.gate, "(hold)", k.hold}
	for job, node := range nodes {
		k.jobs[job] = s.nameOn(t, node, job)
		words = append(words, "("+job+")", k.jobs[job])
	}
	k.cluster = newClusterAt(t, s.URL, strings.NewReplacer(words...).Replace(requestJobs))
	for range 3 {
		k.join(t)
	}
	k.awaitReplicas(t, len(k.replicas))
	return k
}

func (k *requestCluster) join(t *testing.T) {
	t.Helper()
	k.started++
	r := k.start(t, fmt.Sprint("r", k.started))
	r.WaitLog(t, startTimeout, "announcement", announced)
	k.replicas[r.Name] = r
}

// ask has a job run, and returns the command that waits for its end, and the line with which the run began.
func (k *requestCluster) ask(t *testing.T, job string) (waits *replica, start line) {
	t.Helper()
	before := len(starts(k.lines(t, k.jobs[job])))
	waits = k.begin(t, "trigger", k.jobs[job], "--wait")
	eventually(t, soon, "run of job "+job, func() bool {
		all := starts(k.lines(t, k.jobs[job]))
		if len(all) > before {
			start = all[before]
		}
		return len(all) > before
	})
	return waits, start
}

// makeRequests makes every kind of trigger request. The requests are under way when happens is called, and end well after
// it.
func (k *requestCluster) makeRequests(t *testing.T, happens func()) {
	t.Helper()
	waits, asked := k.ask(t, "asked")
	said(t, waits, "begins "+asked.RunID)
	follows := k.begin(t, "logs", k.jobs["asked"], "-f", "--plain")
	said(t, follows, "begins "+asked.RunID)
	endless, long := k.ask(t, "endless")
	k.command(t, "pause", "--tag", "db", "--reason", "a move").want(t, 0, "paused "+k.jobs["paused"])
	since := k.pausedAt(t, k.jobs["paused"], "a move")

	happens()

	after := redisTime(t, k.Client).Unix()
	k.insist(t, "trigger", k.jobs["asked"]).want(t, 1, "skipped: overlap")
	k.insist(t, "cancel", k.jobs["endless"]).want(t, 0, "asked replica "+long.Replica+" to stop run "+long.RunID)
	must(t, os.WriteFile(k.gate, nil, 0o600))
	if code := waits.Wait(t, soon); code != 7 {
		t.Errorf("exit code %d, want the job's", code)
	}
	k.saidAtLast(t, waits, asked.RunID)
	k.saidAtLast(t, follows, asked.RunID)
	must(t, os.Remove(k.gate))
	if code := endless.Wait(t, soon); code == 0 {
		t.Error("who waits for a run that is canceled is told that it ended well")
	}
	k.awaitRun(t, soon, k.jobs["endless"], "canceled run", func(r pastRun) bool { return r.RunID == long.RunID && r.verdict() == "canceled user" })
	tick := time.Now().UTC().AddDate(0, 0, -2).Truncate(24 * time.Hour).Add(3 * time.Hour).Format(time.RFC3339)
	k.insist(t, "trigger", k.jobs["daily"], "--wait", "--tick", tick).want(t, 0, tick+" manual")

	if again := k.pausedAt(t, k.jobs["paused"], "a move"); again != since {
		t.Errorf("paused since %d, and now since %d", since, again)
	}
	k.pauses = append(k.pauses, [2]int64{since, redisTime(t, k.Client).UnixMicro()})
	k.insist(t, "resume", "--tag", "db").want(t, 0, k.jobs["paused"])
	for _, job := range []string{"paused", "load", "pooled", "shares"} {
		k.awaitTick(t, 2*soon, k.jobs[job], after)
	}
	k.awaitRun(t, 2*soon, k.jobs["replaced"], "replaced run", func(r pastRun) bool {
		return r.Tick.Unix() >= after && r.verdict() == "canceled replaced"
	})
	eventually(t, 2*soon, "leader in status", func() bool { return k.status(t).Leader != nil }) // the one before may have been killed
	if s := k.status(t); len(s.Jobs) != len(k.jobs) || len(s.Replicas) < len(k.replicas) {
		t.Errorf("status: %+v", s)
	}
	k.recovers(t)
}

// saidAtLast waits until a command has printed the last line of a run of (asked). While a master is replaced, Redis may not take that line in time: the command
// says then that it is missing, and the history has it.
func (k *requestCluster) saidAtLast(t *testing.T, p *replica, run string) {
	t.Helper()
	last, missing := "ends "+run, "cronclave: run "+run+": its last output is missing; see history --output"
	eventually(t, soon, last+" from "+p.Name, func() bool { return slices.Contains(p.Log(), last) || slices.Contains(p.Log(), missing) })
	k.insist(t, "history", k.jobs["asked"], "--output").want(t, 0, last)
}

// recovers kills the replica that runs a job which is to be recovered.
func (k *requestCluster) recovers(t *testing.T) {
	t.Helper()
	must(t, os.WriteFile(k.hold, nil, 0o600))
	first := k.await(t, 2*soon, k.jobs["frail"], "first attempt that goes on", func(l line) bool { return l.Event == "beat" && !over(l.PID) })
	must(t, os.Remove(k.hold)) // a later tick may come before the recovery
	k.replicas[first.Replica].Kill(t)
	k.killed[first.Replica] = redisTime(t, k.Client)
	delete(k.replicas, first.Replica)
	second := k.await(t, soon, k.jobs["frail"], "second attempt", func(l line) bool { return l.Event == "start" && l.Tick == first.Tick && l.Attempt > 1 })
	if second.Replica == first.Replica || second.Token <= first.Token {
		t.Errorf("not elsewhere with a greater token:\n%s", text([]line{first, second}))
	}
	k.awaitRun(t, soon, k.jobs["frail"], "end of the second attempt", func(r pastRun) bool { return r.RunID == second.RunID && r.Outcome == "ok" })
	k.join(t)
}

// check compares the records of the runs with the promises.
func (k *requestCluster) check(t *testing.T, until int64) {
	t.Helper()
	for name, job := range k.jobs {
		lines := k.lines(t, job)
		checkAlone(t, lines)
		if name == "asked" || name == "endless" || name == "frail" {
			continue
		}
		checkOnce(t, starts(lines), 1)
		checkNotEarly(t, starts(lines))
		k.checkTokensGrow(t, starts(lines))
	}
	checkAtMost(t, inPool(slices.Concat(k.lines(t, k.jobs["pooled"]), k.lines(t, k.jobs["shares"]))), 1)
	for _, l := range starts(k.lines(t, k.jobs["paused"])) {
		for _, p := range k.pauses {
			if at := l.Tick * 1e6; at > p[0] && at < p[1] {
				t.Errorf("a run of paused time: %v", l)
			}
		}
	}
	ok, told := map[int64]bool{}, map[int64]bool{}
	for _, r := range k.history(t, k.jobs["extract"]) {
		ok[r.Tick.Unix()] = r.Outcome == "ok"
	}
	for _, r := range k.history(t, k.jobs["load"]) {
		told[r.Tick.Unix()] = true
	}
	checkChain(t, k.lines(t, k.jobs["extract"]), k.lines(t, k.jobs["load"]), func(end line) bool {
		at, was := k.killed[end.Replica] // a run whose replica was killed, or found no server, between its end and its release has not ended well
		lost := was && end.At().After(at.Add(-time.Second)) || end.At().After(k.away[0].Add(-2*time.Second)) && end.At().Before(k.away[1])
		return ok[end.Tick] && end.Tick < until && !lost
	}, told)
}

// Trigger, logs, cancel, pause and resume work on a Cluster while a slot moves and a master is replaced (P1 to P6).
// Jobs run after others, replace each other, share a pool, and are recovered, on three masters with a replica each.
// Promise: P1, P5
func TestRequestsOnACluster(t *testing.T) {
	slow(t)
	t.Parallel()
	s := startCluster(t)
	s.addReplicas(t)
	one, dies, three := s.nodes[0], s.nodes[1], s.nodes[2]
	k := newRequestCluster(t, map[string]*redisServer{"extract": dies, "load": one, "asked": one, "endless": dies, "daily": three,
		"replaced": dies, "frail": dies, "paused": dies, "pooled": three, "shares": one}, s)
	k.awaitTick(t, soon, k.jobs["load"], 0)

	k.makeRequests(t, func() {
		began := redisTime(t, k.Client)
		for job, to := range map[string]*redisServer{"asked": dies, "load": three} {
			var inBetween *replica
			s.move(t, s.slot(t, k.jobs[job]), to, func() {
				if inBetween == nil {
					inBetween = k.begin(t, "trigger", k.jobs["asked"])
				}
				awaitTime(t, k.Client, time.Unix(redisTime(t, k.Client).Unix()+1, 300_000_000)) // a tick comes due
			})
			if code := inBetween.Wait(t, soon); code != 1 {
				t.Errorf("exit code %d, want 1: a run of the job is under way", code)
			}
		}
		t.Logf("2 moves in %v", redisTime(t, k.Client).Sub(began).Round(time.Millisecond))
	})
	k.makeRequests(t, func() {
		dies.Kill()
		k.away[0] = redisTime(t, k.Client)
		s.awaitTakeOver(t, s.slot(t, k.jobs["extract"]), dies)
		k.away[1] = redisTime(t, k.Client)
		t.Logf("no master for %v", k.away[1].Sub(k.away[0]).Round(time.Millisecond))
	})
	until := redisTime(t, k.Client).Unix()
	k.awaitTick(t, startTimeout, k.jobs["load"], until)
	for _, r := range k.replicas {
		r.Term(t)
	}
	for _, r := range k.replicas {
		r.wantDrained(t)
	}
	k.check(t, until)
}
