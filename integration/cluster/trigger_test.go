package cluster

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
	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking"
)

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
	c := harness.NewCluster(t, onDemand(gate))
	replicas := c.StartAll(t, 3)
	c.AwaitReplicas(t, 3)

	waits := c.Begin(t, "trigger", "gated", "--wait")
	harness.WaitSaid(t, waits, "first")
	harness.WaitSaid(t, waits, "to stderr")
	follows, prefixed := c.Begin(t, "logs", "gated", "-f", "--plain"), c.Begin(t, "logs", "gated", "daily", "-f")
	harness.WaitSaid(t, follows, "first") // also what it printed before
	c.Command(t, "trigger", "gated").Want(t, 1, "job gated: skipped: overlap")
	c.Command(t, "trigger", "gated", "--wait").Want(t, 75, "job gated: skipped: overlap")
	c.Command(t, "trigger", "killed", "--wait").Want(t, 143, "ended by SIGTERM")
	harness.Must(t, os.WriteFile(gate, nil, 0o600))
	if code := waits.Wait(t, harness.Soon); code != 7 {
		t.Errorf("exit code %d, want the job's", code)
	}
	harness.WaitSaid(t, waits, "last")
	harness.WaitSaid(t, follows, "last")
	behind := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d r\d gated +\| last$`)
	harness.Eventually(t, harness.Soon, "the last line behind its time, replica and job", func() bool { return behind.MatchString(strings.Join(prefixed.Log(), "\n")) })
	prefixed.Kill(t)
	if starts := harness.LinesOf("start", c.Lines(t, "gated")); len(starts) != 1 {
		t.Errorf("%d runs", len(starts))
	}

	var told struct {
		Request, Job, Outcome, Reason, Replica string
		RunID                                  string `json:"run_id"`
	}
	run := c.Command(t, "trigger", "gated", "--json")
	if err := json.Unmarshal([]byte(run.Stdout), &told); err != nil || told.Outcome != "running" || told.RunID == "" {
		t.Fatalf("%+v, %v", run, err)
	}
	harness.WaitSaid(t, follows, "==> run "+told.RunID) // one that came later
	ended := c.AwaitRun(t, harness.Soon, "gated", "the end", func(r harness.PastRun) bool { return r.RunID == told.RunID && r.Outcome == "failed" })
	if ended.Trigger != "manual" || !ended.Tick.IsZero() || ended.Replica != told.Replica {
		t.Errorf("history: %+v", ended)
	}
	c.Command(t, "logs", "gated", "--run", told.RunID).Want(t, 0, "last")
	c.Command(t, "logs", "gated", "--run", "nosuch").Want(t, 1, "no run")
	follows.Kill(t)

	tick := time.Now().UTC().AddDate(0, 0, -2).Truncate(24 * time.Hour).Add(3 * time.Hour)
	c.Command(t, "trigger", "daily", "--wait", "--tick", tick.Format(time.RFC3339)).Want(t, 0, tick.Format(time.RFC3339)+" manual")
	c.Command(t, "trigger", "daily", "--tick", tick.Add(time.Second).Format(time.RFC3339)).Want(t, 2, "is no tick of job daily")
	c.Command(t, "trigger", "nosuch").Want(t, 2, `no job "nosuch"`)

	harness.StopAll(t, replicas)
	c.Command(t, "trigger", "daily").Want(t, 1, "no replica is there")
}

// Two followers of a run that hangs get the same text, though Redis has lost its output before the second one comes; and so do logs and history, which
// name the command that follows it.
func TestTwoFollowersOfARunThatHangs(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	c := harness.NewCluster(t, onDemand(gate))
	c.StartAll(t, 2)
	c.AwaitReplicas(t, 2)
	c.Command(t, "trigger", "gated").Want(t, 0, "")
	run := c.AwaitRun(t, harness.Soon, "gated", "start", func(r harness.PastRun) bool { return r.Outcome == "running" })
	first := c.Begin(t, "logs", "gated", "-f", "--plain")
	harness.WaitSaid(t, first, "first")
	harness.WaitSaid(t, first, "to stderr")
	if n := c.Client.Del(t.Context(), "cronclave:"+c.Namespace+":{gated}:live:"+run.RunID).Val(); n != 1 { // as by the time to live
		t.Fatalf("%d keys with its output", n)
	}
	second := c.Begin(t, "logs", "gated", "-f", "--plain")
	harness.WaitSaid(t, second, "first")
	harness.WaitSaid(t, second, "to stderr")
	for _, shows := range [][]string{{"logs", "gated"}, {"history", "gated", "--output"}} {
		shown := c.Command(t, shows...)
		shown.Want(t, 0, "first\n")
		shown.Want(t, 0, "cronclave logs -f gated --run "+run.RunID)
	}
	harness.Must(t, os.WriteFile(gate, nil, 0o600))
	harness.WaitSaid(t, first, "last")
	harness.WaitSaid(t, second, "last")
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
	testtier.Slow(t)
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	c := harness.NewCluster(t, onDemand(gate))
	harness.Must(t, os.WriteFile(gate, nil, 0o600))
	replicas := map[string]*harness.Replica{}
	for _, r := range c.StartAll(t, 3) {
		replicas[r.Name] = r
	}
	c.AwaitReplicas(t, 3)
	// A lock that is closed to grants, as after Redis has forgotten, makes the claimant of the request wait.
	closed := c.Client.Time(t.Context()).Val().Add(12 * time.Second)
	harness.Must(t, c.Client.HSet(t.Context(), "cronclave:"+c.Namespace+":{gated}:job", "longest", 12_000_000, "closed", closed.UnixMicro()).Err())
	waits := c.Begin(t, "trigger", "gated", "--wait")
	var claimant string
	harness.Eventually(t, harness.Soon, "claim of the request", func() bool {
		_, after, ok := strings.Cut(strings.Join(waits.Log(), "\n"), "cronclave: replica ")
		claimant, _, _ = strings.Cut(after, " ")
		return ok
	})
	replicas[claimant].Kill(t)
	if code := waits.Wait(t, 2*harness.Soon); code != 7 {
		t.Errorf("exit code %d, want the job's", code)
	}
	starts := harness.LinesOf("start", c.Lines(t, "gated"))
	if len(starts) != 1 || starts[0].Replica == claimant {
		t.Errorf("taken by %s, runs: %+v", claimant, starts)
	}
}

// A trigger request on a quorum is begun once, and a claimant that dies is replaced.
// Promise: P5
func TestRequestOnAQuorum(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	servers := harness.Masters(t)
	member := func(name string) (e *election.Elector, die func()) {
		cfg := locking.Config{Prefix: "it:", Owner: name, Timeout: harness.Patience}
		for _, s := range servers {
			cfg.Quorum = append(cfg.Quorum, redis.NewClient(harness.ClientOptions(s.Instance.Addr())))
		}
		locks, err := locking.New(cfg)
		harness.Must(t, err)
		e, err = election.New(election.Config{Locks: locks})
		harness.Must(t, err)
		die = sync.OnceFunc(func() {
			for _, c := range cfg.Quorum {
				harness.Must(t, c.Close()) // first, so that nothing can be released
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
		harness.Eventually(t, harness.Soon, string(want), func() bool {
			what.Claimant = rand.Text()
			r = e.ClaimTrigger(t.Context(), what)
			return r.Verdict == want
		})
		return r
	}
	take(a, election.Granted)
	if r := take(b, election.Taken); r.Holder != "a" {
		t.Errorf("while it is not begun: %+v", r)
	}
	die()
	recovery := take(b, election.Granted)
	if election.TermOf(recovery).Attempt() != 2 {
		t.Errorf("attempt %d", election.TermOf(recovery).Attempt())
	}
	harness.Must(t, election.TermOf(recovery).End(t.Context()))
	c, _ := member("c")
	if r := take(c, election.Taken); !r.Until.IsZero() {
		t.Errorf("after it was begun: %+v", r)
	}
	what.ID = "another"
	harness.Must(t, election.TermOf(take(b, election.Granted)).Undo(t.Context()))
	harness.Must(t, election.TermOf(take(c, election.Granted)).End(t.Context()))
}
