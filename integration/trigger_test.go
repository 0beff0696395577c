package integration

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/locking"
)

// begin starts a command line of cronclave, and returns at once.
func (c *cluster) begin(t *testing.T, args ...string) *replica {
	t.Helper()
	env := append([]string{"CRONCLAVE_REDIS=" + c.url, "CRONCLAVE_CONFIG=" + c.path, quickExit}, c.env...)
	return startObserved(t, args[0], "", env, program(t, cronclaveProgram), append(args, "--namespace", c.Namespace)...)
}

// said waits until a command line has printed a line.
func said(t *testing.T, p *replica, line string) {
	t.Helper()
	eventually(t, soon, line+" from "+p.Name, func() bool { return strings.Contains("\n"+strings.Join(p.Log(), "\n")+"\n", "\n"+line+"\n") })
}

// onDemand are jobs that run on request, and go on when a file is there.
func onDemand(gate string) string {
	return `
[defaults]
lease = "2s"

[jobs.gated]
schedule = "0 0 31 12 *"
command = 'CRONCLAVE_TICK_UNIX=0 "$SCRIBE"; echo first; echo to stderr >&2; while ! test -e ` + gate + `; do sleep 0.05; done; echo last; exit 7'

[jobs.killed]
schedule = "0 0 31 12 *"
command = 'kill -TERM $$'

[jobs.daily]
schedule = "0 3 * * *"
command = 'echo "$CRONCLAVE_TICK" "$CRONCLAVE_TRIGGER"'
`
}

// A triggered run starts once, on one of three replicas, and its output is shown while it runs.
// Promise: P1
func TestTrigger(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	c := newCluster(t, onDemand(gate))
	replicas := c.startAll(t, 3)
	c.awaitReplicas(t, 3)

	waits := c.begin(t, "trigger", "gated", "--wait")
	said(t, waits, "first")
	said(t, waits, "to stderr")
	follows, prefixed := c.begin(t, "logs", "gated", "-f", "--plain"), c.begin(t, "logs", "gated", "daily", "-f")
	said(t, follows, "first") // also what it printed before
	c.command(t, "trigger", "gated").want(t, 1, "job gated: skipped: overlap")
	c.command(t, "trigger", "gated", "--wait").want(t, 75, "job gated: skipped: overlap")
	c.command(t, "trigger", "killed", "--wait").want(t, 143, "ended by SIGTERM")
	must(t, os.WriteFile(gate, nil, 0o600))
	if code := waits.Wait(t, soon); code != 7 {
		t.Errorf("exit code %d, want the job's", code)
	}
	said(t, waits, "last")
	said(t, follows, "last")
	behind := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d r\d gated +\| last$`)
	eventually(t, soon, "the last line behind its time, replica and job", func() bool { return behind.MatchString(strings.Join(prefixed.Log(), "\n")) })
	prefixed.Kill(t)
	if starts := event("start", c.lines(t, "gated")); len(starts) != 1 {
		t.Errorf("%d runs", len(starts))
	}

	var told struct {
		Request, Job, Outcome, Reason, Replica string
		RunID                                  string `json:"run_id"`
	}
	run := c.command(t, "trigger", "gated", "--json")
	if err := json.Unmarshal([]byte(run.stdout), &told); err != nil || told.Outcome != "running" || told.RunID == "" {
		t.Fatalf("%+v, %v", run, err)
	}
	said(t, follows, "==> run "+told.RunID) // one that came later
	ended := c.awaitRun(t, soon, "gated", "the end", func(r pastRun) bool { return r.RunID == told.RunID && r.Outcome == "failed" })
	if ended.Trigger != "manual" || !ended.Tick.IsZero() || ended.Replica != told.Replica {
		t.Errorf("history: %+v", ended)
	}
	c.command(t, "logs", "gated", "--run", told.RunID).want(t, 0, "last")
	c.command(t, "logs", "gated", "--run", "nosuch").want(t, 1, "no run")
	follows.Kill(t)

	tick := time.Now().UTC().AddDate(0, 0, -2).Truncate(24 * time.Hour).Add(3 * time.Hour)
	c.command(t, "trigger", "daily", "--wait", "--tick", tick.Format(time.RFC3339)).want(t, 0, tick.Format(time.RFC3339)+" manual")
	c.command(t, "trigger", "daily", "--tick", tick.Add(time.Second).Format(time.RFC3339)).want(t, 2, "is no tick of job daily")
	c.command(t, "trigger", "nosuch").want(t, 2, `no job "nosuch"`)

	stopAll(t, replicas)
	c.command(t, "trigger", "daily").want(t, 1, "no replica is there")
}

// Two followers of a run that hangs get the same text, though Redis has lost its output before the second one comes; and so do logs and history, which
// name the command that follows it.
func TestTwoFollowersOfARunThatHangs(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	c := newCluster(t, onDemand(gate))
	c.startAll(t, 2)
	c.awaitReplicas(t, 2)
	c.command(t, "trigger", "gated").want(t, 0, "")
	run := c.awaitRun(t, soon, "gated", "start", func(r pastRun) bool { return r.Outcome == "running" })
	first := c.begin(t, "logs", "gated", "-f", "--plain")
	said(t, first, "first")
	said(t, first, "to stderr")
	if n := c.Client.Del(t.Context(), "cronclave:"+c.Namespace+":{gated}:live:"+run.RunID).Val(); n != 1 { // as by the time to live
		t.Fatalf("%d keys with its output", n)
	}
	second := c.begin(t, "logs", "gated", "-f", "--plain")
	said(t, second, "first")
	said(t, second, "to stderr")
	for _, shows := range [][]string{{"logs", "gated"}, {"history", "gated", "--output"}} {
		shown := c.command(t, shows...)
		shown.want(t, 0, "first\n")
		shown.want(t, 0, "cronclave logs -f gated --run "+run.RunID)
	}
	must(t, os.WriteFile(gate, nil, 0o600))
	said(t, first, "last")
	said(t, second, "last")
	one, other := slices.Sorted(slices.Values(first.Log())), slices.Sorted(slices.Values(second.Log()))
	if !slices.Equal(one, other) || len(one) != 4 {
		t.Errorf("the first follower printed %q, the second %q", one, other)
	}
	first.Kill(t)
	second.Kill(t)
}

// A replica that claimed a trigger request and is killed before the run starts is replaced by another, once.
// Promise: P5
func TestClaimantOfARequestIsKilled(t *testing.T) {
	slow(t)
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	c := newCluster(t, onDemand(gate))
	must(t, os.WriteFile(gate, nil, 0o600))
	replicas := map[string]*replica{}
	for _, r := range c.startAll(t, 3) {
		replicas[r.Name] = r
	}
	c.awaitReplicas(t, 3)
	// A lock that is closed to grants, as after Redis has forgotten, makes the claimant of the request wait.
	closed := c.Client.Time(t.Context()).Val().Add(12 * time.Second)
	must(t, c.Client.HSet(t.Context(), "cronclave:"+c.Namespace+":{gated}:job", "longest", 12_000_000, "closed", closed.UnixMicro()).Err())
	waits := c.begin(t, "trigger", "gated", "--wait")
	var claimant string
	eventually(t, soon, "claim of the request", func() bool {
		_, after, ok := strings.Cut(strings.Join(waits.Log(), "\n"), "cronclave: replica ")
		claimant, _, _ = strings.Cut(after, " ")
		return ok
	})
	replicas[claimant].Kill(t)
	if code := waits.Wait(t, 2*soon); code != 7 {
		t.Errorf("exit code %d, want the job's", code)
	}
	starts := event("start", c.lines(t, "gated"))
	if len(starts) != 1 || starts[0].Replica == claimant {
		t.Errorf("taken by %s, runs: %+v", claimant, starts)
	}
}

// awaitReplicas waits until so many have registered.
func (c *cluster) awaitReplicas(t *testing.T, n int) {
	t.Helper()
	eventually(t, soon, "registration of all replicas", func() bool { return len(c.status(t).Replicas) == n })
}

// A trigger request on a quorum is begun once, and a claimant that dies is replaced.
// Promise: P5
func TestRequestOnAQuorum(t *testing.T) {
	t.Parallel()
	servers := masters(t)
	member := func(name string) (e *election.Elector, die func()) {
		cfg := locking.Config{Prefix: "it:", Owner: name, Timeout: patience}
		for _, s := range servers {
			cfg.Quorum = append(cfg.Quorum, redis.NewClient(clientOptions(s.instance.addr())))
		}
		locks, err := locking.New(cfg)
		must(t, err)
		e, err = election.New(election.Config{Locks: locks})
		must(t, err)
		die = sync.OnceFunc(func() {
			for _, c := range cfg.Quorum {
				must(t, c.Close()) // first, so that nothing can be released
			}
			_ = locks.Close()
		})
		t.Cleanup(die)
		return e, die
	}
	a, die := member("a")
	b, _ := member("b")
	now := servers[0].Client.Time(t.Context()).Val()
	what := election.TriggerRequest{Job: "report", ID: "please", Created: now, Expires: now.Add(time.Minute), Lease: 5 * time.Second}
	take := func(e *election.Elector, want election.Verdict) (r election.Result) {
		t.Helper()
		eventually(t, soon, string(want), func() bool {
			what.Claimant = rand.Text()
			r = e.ClaimTrigger(t.Context(), what)
			return r.Verdict == want
		})
		return r
	}
	take(a, election.Granted)
	if r := take(b, election.Taken); r.By != "a" {
		t.Errorf("while it is not begun: %+v", r)
	}
	die()
	recovery := take(b, election.Granted)
	if recovery.Term.Attempt() != 2 {
		t.Errorf("attempt %d", recovery.Term.Attempt())
	}
	must(t, recovery.Term.End(t.Context()))
	c, _ := member("c")
	if r := take(c, election.Taken); !r.Until.IsZero() {
		t.Errorf("after it was begun: %+v", r)
	}
	what.ID = "another"
	must(t, take(b, election.Granted).Term.Undo(t.Context()))
	must(t, take(c, election.Granted).Term.End(t.Context()))
}
