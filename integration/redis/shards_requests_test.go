package redis

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking"
)

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
	*harness.Cluster
	gate     string            // a file that has (asked) end
	hold     string            // one that has first attempts of (frail) go on
	jobs     map[string]string // the names of jobs
	replicas map[string]*harness.Replica
	started  int
	killed   map[string]time.Time // replicas, and when
	pauses   [][2]int64           // of (paused), microseconds
	away     [2]time.Time         // when a master was gone
}

// newRequestCluster puts the jobs on masters: child and parent are apart.
func newRequestCluster(t *testing.T, nodes map[string]*harness.RedisServer, s *harness.Shards) *requestCluster {
	t.Helper()
	k := &requestCluster{gate: filepath.Join(t.TempDir(), "gate"), hold: filepath.Join(t.TempDir(), "hold"), jobs: map[string]string{},
		replicas: map[string]*harness.Replica{}, killed: map[string]time.Time{}}
	words := []string{"(gate)", k.gate, "(hold)", k.hold}
	for job, node := range nodes {
		k.jobs[job] = s.NameOn(t, node, job)
		words = append(words, "("+job+")", k.jobs[job])
	}
	k.Cluster = harness.NewClusterAt(t, s.URL, strings.NewReplacer(words...).Replace(requestJobs))
	for range 3 {
		k.join(t)
	}
	k.AwaitReplicas(t, len(k.replicas))
	return k
}

func (k *requestCluster) join(t *testing.T) {
	t.Helper()
	k.started++
	r := k.Start(t, fmt.Sprint("r", k.started))
	r.WaitLog(t, harness.StartTimeout, "announcement", harness.Announced)
	k.replicas[r.Name] = r
}

// ask has a job run, and returns the command that waits for its end, and the line with which the run began.
func (k *requestCluster) ask(t *testing.T, job string) (waits *harness.Replica, start harness.Line) {
	t.Helper()
	before := len(harness.Starts(k.Lines(t, k.jobs[job])))
	waits = k.Begin(t, "trigger", k.jobs[job], "--wait")
	harness.Eventually(t, harness.Soon, "run of job "+job, func() bool {
		all := harness.Starts(k.Lines(t, k.jobs[job]))
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
	harness.WaitSaid(t, waits, "begins "+asked.RunID)
	follows := k.Begin(t, "logs", k.jobs["asked"], "-f", "--plain")
	harness.WaitSaid(t, follows, "begins "+asked.RunID)
	endless, long := k.ask(t, "endless")
	k.Command(t, "pause", "--tag", "db", "--reason", "a move").Want(t, 0, "paused "+k.jobs["paused"])
	since := k.PausedAt(t, k.jobs["paused"], "a move")

	happens()

	after := harness.RedisTime(t, k.Client).Unix()
	k.Insist(t, "trigger", k.jobs["asked"]).Want(t, 1, "skipped: overlap")
	k.Insist(t, "cancel", k.jobs["endless"]).Want(t, 0, "asked replica "+long.Replica+" to stop run "+long.RunID)
	harness.Must(t, os.WriteFile(k.gate, nil, 0o600))
	if code := waits.Wait(t, harness.Soon); code != 7 {
		t.Errorf("exit code %d, want the job's", code)
	}
	k.saidAtLast(t, waits, asked.RunID)
	k.saidAtLast(t, follows, asked.RunID)
	harness.Must(t, os.Remove(k.gate))
	if code := endless.Wait(t, harness.Soon); code == 0 {
		t.Error("who waits for a run that is canceled is told that it ended well")
	}
	k.AwaitRun(t, harness.Soon, k.jobs["endless"], "canceled run", func(r harness.PastRun) bool { return r.RunID == long.RunID && r.Verdict() == "canceled user" })
	tick := time.Now().UTC().AddDate(0, 0, -2).Truncate(24 * time.Hour).Add(3 * time.Hour).Format(time.RFC3339)
	k.Insist(t, "trigger", k.jobs["daily"], "--wait", "--tick", tick).Want(t, 0, tick+" manual")

	if again := k.PausedAt(t, k.jobs["paused"], "a move"); again != since {
		t.Errorf("paused since %d, and now since %d", since, again)
	}
	k.pauses = append(k.pauses, [2]int64{since, harness.RedisTime(t, k.Client).UnixMicro()})
	k.Insist(t, "resume", "--tag", "db").Want(t, 0, k.jobs["paused"])
	for _, job := range []string{"paused", "load", "pooled", "shares"} {
		k.AwaitTick(t, 2*harness.Soon, k.jobs[job], after)
	}
	k.AwaitRun(t, 2*harness.Soon, k.jobs["replaced"], "replaced run", func(r harness.PastRun) bool {
		return r.Tick.Unix() >= after && r.Verdict() == "canceled replaced"
	})
	harness.Eventually(t, 2*harness.Soon, "leader in status", func() bool { return k.Status(t).Leader != nil }) // the one before may have been killed
	if s := k.Status(t); len(s.Jobs) != len(k.jobs) || len(s.Replicas) < len(k.replicas) {
		t.Errorf("status: %+v", s)
	}
	k.recovers(t)
}

// saidAtLast waits until a command has printed the last line of a run of (asked). While a master is replaced, Redis may not take that line in time: the command
// says then that it is missing, and the history has it.
func (k *requestCluster) saidAtLast(t *testing.T, p *harness.Replica, run string) {
	t.Helper()
	last, missing := "ends "+run, "cronclave: run "+run+": its last output is missing; see history --output"
	harness.Eventually(t, harness.Soon, last+" from "+p.Name, func() bool { return slices.Contains(p.Log(), last) || slices.Contains(p.Log(), missing) })
	k.Insist(t, "history", k.jobs["asked"], "--output").Want(t, 0, last)
}

// recovers kills the replica that runs a job which is to be recovered.
func (k *requestCluster) recovers(t *testing.T) {
	t.Helper()
	harness.Must(t, os.WriteFile(k.hold, nil, 0o600))
	first := k.Await(t, 2*harness.Soon, k.jobs["frail"], "first attempt that goes on", func(l harness.Line) bool { return l.Event == "beat" && !harness.HasEnded(l.PID) })
	harness.Must(t, os.Remove(k.hold)) // a later tick may come before the recovery
	k.replicas[first.Replica].Kill(t)
	k.killed[first.Replica] = harness.RedisTime(t, k.Client)
	delete(k.replicas, first.Replica)
	second := k.Await(t, harness.Soon, k.jobs["frail"], "second attempt", func(l harness.Line) bool { return l.Event == "start" && l.Tick == first.Tick && l.Attempt > 1 })
	if second.Replica == first.Replica || second.Token <= first.Token {
		t.Errorf("not elsewhere with a greater token:\n%s", harness.TextOf([]harness.Line{first, second}))
	}
	k.AwaitRun(t, harness.Soon, k.jobs["frail"], "end of the second attempt", func(r harness.PastRun) bool { return r.RunID == second.RunID && r.Outcome == "ok" })
	k.join(t)
}

// check compares the records of the runs with the promises.
func (k *requestCluster) check(t *testing.T, until int64) {
	t.Helper()
	for name, job := range k.jobs {
		lines := k.Lines(t, job)
		harness.CheckAlone(t, lines)
		if name == "asked" || name == "endless" || name == "frail" {
			continue
		}
		harness.CheckOnce(t, harness.Starts(lines), 1)
		harness.CheckNotEarly(t, harness.Starts(lines))
		k.CheckTokensGrow(t, harness.Starts(lines))
	}
	harness.CheckAtMost(t, harness.InPool(slices.Concat(k.Lines(t, k.jobs["pooled"]), k.Lines(t, k.jobs["shares"]))), 1)
	for _, l := range harness.Starts(k.Lines(t, k.jobs["paused"])) {
		for _, p := range k.pauses {
			if at := l.Tick * 1e6; at > p[0] && at < p[1] {
				t.Errorf("a run of paused time: %v", l)
			}
		}
	}
	ok, told := map[int64]bool{}, map[int64]bool{}
	for _, r := range k.History(t, k.jobs["extract"]) {
		ok[r.Tick.Unix()] = r.Outcome == "ok"
	}
	for _, r := range k.History(t, k.jobs["load"]) {
		told[r.Tick.Unix()] = true
	}
	harness.CheckChain(t, k.Lines(t, k.jobs["extract"]), k.Lines(t, k.jobs["load"]), func(end harness.Line) bool {
		at, was := k.killed[end.Replica] // a run whose replica was killed, or found no server, between its end and its release has not ended well
		lost := was && end.At().After(at.Add(-time.Second)) || end.At().After(k.away[0].Add(-2*time.Second)) && end.At().Before(k.away[1])
		return ok[end.Tick] && end.Tick < until && !lost
	}, told)
}

// Trigger, logs, cancel, pause and resume work on a Cluster while a slot moves and a master is replaced (P1 to P6).
// Jobs run after others, replace each other, share a pool, and are recovered, on three masters with a replica each.
// Promise: P1, P5
func TestRequestsOnACluster(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartCluster(t)
	s.AddReplicas(t)
	one, dies, three := s.Nodes[0], s.Nodes[1], s.Nodes[2]
	k := newRequestCluster(t, map[string]*harness.RedisServer{"extract": dies, "load": one, "asked": one, "endless": dies, "daily": three,
		"replaced": dies, "frail": dies, "paused": dies, "pooled": three, "shares": one}, s)
	k.AwaitTick(t, harness.Soon, k.jobs["load"], 0)

	k.makeRequests(t, func() {
		began := harness.RedisTime(t, k.Client)
		for job, to := range map[string]*harness.RedisServer{"asked": dies, "load": three} {
			var inBetween *harness.Replica
			s.Move(t, s.Slot(t, k.jobs[job]), to, func() {
				if inBetween == nil {
					inBetween = k.Begin(t, "trigger", k.jobs["asked"])
				}
				harness.AwaitTime(t, k.Client, time.Unix(harness.RedisTime(t, k.Client).Unix()+1, 300_000_000)) // a tick comes due
			})
			if code := inBetween.Wait(t, harness.Soon); code != 1 {
				t.Errorf("exit code %d, want 1: a run of the job is under way", code)
			}
		}
		t.Logf("2 moves in %v", harness.RedisTime(t, k.Client).Sub(began).Round(time.Millisecond))
	})
	k.makeRequests(t, func() {
		dies.Kill()
		k.away[0] = harness.RedisTime(t, k.Client)
		s.AwaitTakeOver(t, s.Slot(t, k.jobs["extract"]), dies)
		k.away[1] = harness.RedisTime(t, k.Client)
		t.Logf("no master for %v", k.away[1].Sub(k.away[0]).Round(time.Millisecond))
	})
	until := harness.RedisTime(t, k.Client).Unix()
	k.AwaitTick(t, harness.StartTimeout, k.jobs["load"], until)
	for _, r := range k.replicas {
		r.Term(t)
	}
	for _, r := range k.replicas {
		r.WantDrained(t)
	}
	k.check(t, until)
}

// On a Cluster without sharded channels waiters hear of grants on all its nodes, and do not only find them by
// polling. The Cluster looks like one of before Redis 7, as far as its commands show.
// Promise: P9
func TestWaitersHearOnAClusterWithoutShardedChannels(t *testing.T) {
	t.Parallel()
	const enough, tries, lease = 6, 60, time.Minute
	s := harness.StartCluster(t, "--rename-command", "SSUBSCRIBE", "without-ssubscribe", "--rename-command", "SPUBLISH", "without-spublish")
	clients := [2]*locking.Client{}
	for i := range clients {
		rdb := s.Client(t)
		defer rdb.Close()
		clients[i] = harness.Must1(locking.New(locking.Config{Redis: rdb, Timeout: harness.StartTimeout}))(t)
		defer clients[i].Close()
	}
	heard := 0
	for i := 0; heard < enough; i++ {
		if i == tries {
			t.Fatalf("%d of %d grants were heard of", heard, tries)
		}
		name := fmt.Sprint("lock-", i)
		held := harness.Must1(clients[0].Mutex(name).Lock(t.Context()))(t)
		got := make(chan *locking.Lease, 1)
		go func() {
			l, err := clients[1].Mutex(name, locking.WithLease(lease)).Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		at := harness.Must1(s.Nodes[0].Client.ClusterKeySlot(t.Context(), name).Result())(t)
		node := s.Owner(t, int(at)).Client
		harness.Eventually(t, harness.StartTimeout, "a waiter", func() bool { return harness.Must1(node.ZCard(t.Context(), "locking:{"+name+"}:queue").Result())(t) > 0 })
		harness.Must(t, held.Release(t.Context()))
		l := <-got
		if l == nil {
			t.FailNow()
		}
		if l.Remaining() < lease/2 { // it was told, and has a second to confirm it
			heard++
		}
		harness.Must(t, l.Release(t.Context()))
	}
}
