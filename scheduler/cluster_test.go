package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

func TestMain(m *testing.M) {
	redis.SetLogger(mute{}) // it logs every connection that a test cuts
	goleak.VerifyTestMain(m)
}

type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}

// cluster is a number of replicas on one in-process Redis, all inside a bubble of fake time. It knows what the jobs'
// functions have seen, which is the truth, and what the replicas have told the journal.
type cluster struct {
	t      *testing.T
	server *embedded.Server
	start  time.Time
	quiet  bool // logs nothing

	mu       sync.Mutex
	ran      []*ran
	records  []run.Record
	replicas []*replica
	members  []string // their names, for each other
}

// ran is what a job's function saw.
type ran struct {
	scheduler.Run
	from, to time.Time // to is zero while it runs
	cause    error     // why it was told to stop
}

// inCluster runs a test in a bubble, beside other tests, and stops all replicas at its end.
func inCluster(t *testing.T, test func(c *cluster)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := embedded.Start(embedded.Config{DialOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		c := &cluster{t: t, server: server, start: time.Now()}
		defer func() {
			for _, r := range c.replicas {
				r.Abort()
				r.leave()
			}
			server.Close()
			pass(2 * time.Second) // go-redis tries to dial for a while
		}()
		test(c)
	})
}

// at waits for an instant of the test, counted from its start. The start is midnight UTC.
func (c *cluster) at(d time.Duration) { pass(time.Until(c.start.Add(d))) }

// replica is one scheduler with a wire of its own.
type replica struct {
	*scheduler.Scheduler
	name    string
	cluster *cluster
	wire    wire
	locks   *locking.Client
	rdb     *redis.Client
	stop    context.CancelFunc
	done    chan struct{} // closed when Run has returned
	err     error         // of Run

	mu    sync.Mutex
	dead  bool // its records do not reach the journal
	hangs bool // its journal does not answer
	asked []asked

	withdraws func() // before the first withdrawal that is waited for
}

// asked is a claim that a replica has made.
type asked struct {
	election.Claim
	when time.Time
}

// replica makes one that does not run yet.
func (c *cluster) replica(name string, jobs []scheduler.Job, edits ...func(*scheduler.Config)) *replica {
	c.t.Helper()
	r := &replica{name: name, cluster: c, wire: wire{dial: c.server.Dial}, done: make(chan struct{})}
	r.rdb = redis.NewClient(&redis.Options{Addr: c.server.Addr(), Dialer: r.wire.Dial, ContextTimeoutEnabled: true,
		MaxRetries: -1, DialerRetries: 1})
	var err error
	if r.locks, err = locking.New(locking.Config{Redis: r.rdb, Prefix: "cronclave:test:", Owner: name,
		Clock: func() time.Duration { return time.Since(c.start) }}); err != nil {
		c.t.Fatal(err)
	}
	elector, err := election.New(election.Config{Locks: r.locks})
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := scheduler.Config{Jobs: jobs, Claimer: spy{elector, r}, Journal: r, Replica: name, Logger: c.logger(name),
		GrantEvents: elector, Pools: elector}
	for _, edit := range edits {
		edit(&cfg)
	}
	if r.Scheduler, err = scheduler.New(cfg); err != nil {
		c.t.Fatal(err)
	}
	c.replicas = append(c.replicas, r)
	c.mu.Lock()
	c.members = append(c.members, name)
	c.mu.Unlock()
	return r
}

// ranked lets replicas take ranks for each job. To their peers those that have died or left still seem alive.
func (c *cluster) ranked(cfg *scheduler.Config) {
	name := cfg.Replica
	cfg.Peers = func(scheduler.Labels) (string, []string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return name, slices.Clone(c.members)
	}
}

func (c *cluster) logger(name string) hclog.Logger {
	if c.quiet {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: name, Level: hclog.Info, Output: testLog{c}, DisableTime: true})
}

// testLog writes to the test's log, by the bubble's clock.
type testLog struct{ c *cluster }

func (w testLog) Write(p []byte) (int, error) {
	w.c.t.Logf("%v %s", time.Since(w.c.start), strings.TrimSpace(string(p)))
	return len(p), nil
}

// join makes a replica and runs it.
func (c *cluster) join(name string, jobs []scheduler.Job, edits ...func(*scheduler.Config)) *replica {
	c.t.Helper()
	r := c.replica(name, jobs, edits...)
	r.run()
	return r
}

// joinAll runs n replicas with the same jobs.
func (c *cluster) joinAll(n int, jobs []scheduler.Job, edits ...func(*scheduler.Config)) []*replica {
	c.t.Helper()
	var all []*replica
	for i := range n {
		all = append(all, c.join(fmt.Sprintf("r%d", i), jobs, edits...))
	}
	return all
}

func (r *replica) run() {
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		defer close(r.done)
		r.err = r.Run(ctx)
		if left := r.Leftovers(); r.err == nil && len(left) > 0 {
			r.cluster.t.Errorf("%s has left over: %v", r.name, left)
		}
	}()
}

// hold takes a slot of a job outside its schedule.
func (r *replica) hold(job string) *election.Term { return r.take(job, "manual", 1) }

// take takes one of so many slots.
func (r *replica) take(job, id string, slots int) *election.Term {
	r.cluster.t.Helper()
	elector, err := election.New(election.Config{Locks: r.locks})
	if err != nil {
		r.cluster.t.Fatal(err)
	}
	got := elector.Claim(context.Background(), []election.Claim{{Lock: election.JobLock(job), ID: id, Trigger: "manual", Slots: slots, Lease: time.Minute}})[0]
	if got.Verdict != election.Granted {
		r.cluster.t.Fatalf("%+v", got)
	}
	return election.TermOf(got)
}

// leave drains the replica and closes its connections.
func (r *replica) leave() {
	if r.stop != nil {
		r.stop()
		<-r.done
		r.stop = nil
	}
	_ = r.locks.Close()
	_ = r.rdb.Close()
	r.wire.deliveries.Wait()
}

// die is what a replica's death looks like to the others: it is silent, and does not come back.
func (r *replica) die() {
	r.mu.Lock()
	r.dead = true
	r.mu.Unlock()
	r.wire.silence()
}

// journalHangs has the replica's journal take nothing any more, and say nothing.
func (r *replica) journalHangs() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hangs = true
}

var errDead = errors.New("the dead tell no tales")

// Record keeps records in memory, as the journal of all replicas.
func (r *replica) Record(ctx context.Context, records []run.Record) error {
	r.mu.Lock()
	dead, hangs := r.dead, r.hangs
	r.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if dead {
		return errDead
	}
	c := r.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = append(c.records, records...)
	return nil
}

// spy is a claimer that writes down each claim.
type spy struct {
	*election.Elector
	replica *replica
}

func (s spy) Claim(ctx context.Context, claims []election.Claim) []election.Result {
	if r := s.replica; !r.cluster.quiet {
		r.mu.Lock()
		for _, claim := range claims {
			r.asked = append(r.asked, asked{claim, time.Now()})
		}
		r.mu.Unlock()
	}
	return s.Elector.Claim(ctx, claims)
}

// claims is what the replica has asked for since an instant.
func (r *replica) claims(since time.Time) []asked {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []asked
	for _, a := range r.asked {
		if !a.when.Before(since) {
			out = append(out, a)
		}
	}
	return out
}

// job is a job whose runs last for d, or until they are told to stop.
func (c *cluster) job(name, schedule string, d time.Duration, edits ...func(*scheduler.Job)) scheduler.Job {
	j := scheduler.Job{Name: name, Schedule: []string{schedule}}
	j.Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
		seen := c.began(run)
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		c.ended(seen, context.Cause(ctx))
		return context.Cause(ctx)
	})
	for _, edit := range edits {
		edit(&j)
	}
	return j
}

func (c *cluster) began(run *scheduler.Run) *ran {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := &ran{Run: *run, from: time.Now()}
	c.ran = append(c.ran, seen)
	return seen
}

func (c *cluster) ended(seen *ran, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen.to, seen.cause = time.Now(), cause
}

// runs is what ran of a job so far, in the order of their starts.
func (c *cluster) runs(job string) []ran {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []ran
	for _, r := range c.ran {
		if r.Job == job {
			out = append(out, *r)
		}
	}
	return out
}

// ticks returns which ticks of a job ran, as seconds of the test, in the order of their starts.
func (c *cluster) ticks(job string) []int {
	var out []int
	for _, r := range c.runs(job) {
		out = append(out, c.second(r.Tick))
	}
	return out
}

func (c *cluster) second(t time.Time) int { return int(t.Sub(c.start) / time.Second) }

// words is the last word on each run of a job, as a journal keeps it: the end wins over the start, and the holder
// over those who believed it dead.
func (c *cluster) words(job string) map[string]run.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := map[string]run.Record{}
	for _, r := range c.records {
		if r.Job != job {
			continue
		}
		known, ok := last[r.RunID]
		if !ok || known.Outcome == run.Running || known.Outcome == run.Abandoned && r.Outcome != run.Running {
			last[r.RunID] = r
		}
	}
	return last
}

// outcomes counts the last words on a job: "ok", "skipped overlap".
func (c *cluster) outcomes(job string) map[string]int {
	count := map[string]int{}
	for _, r := range c.words(job) {
		count[verdict(r)]++
	}
	return count
}

func verdict(r run.Record) string { return r.Verdict().String() }

// told is the verdicts of a job by its ticks, as seconds of the test.
func (c *cluster) told(job string) map[int][]string {
	out := map[int][]string{}
	for _, r := range c.words(job) {
		s := c.second(r.Tick)
		out[s] = append(out[s], verdict(r))
		slices.Sort(out[s])
	}
	return out
}

// want compares, for one line of a test.
func want[T any](t *testing.T, what string, got, expected T) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(expected); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

// seconds lists from, from+step, ... up to to.
func seconds(from, to, step int) []int {
	var out []int
	for s := from; s <= to; s += step {
		out = append(out, s)
	}
	return out
}

// checkRuns holds the promises that every test must keep: a tick is granted at most perTick times and each slot
// once (P1), not before its instant (P2), never more than parallel at once (P3), with growing tokens (P4).
func (c *cluster) checkRuns(job string, parallel, perTick int) {
	c.t.Helper()
	c.checkAttempts(job, perTick)
	grants := map[string]int{}
	var newest int64
	all := c.runs(job)
	for i, r := range all {
		tick := fmt.Sprintf("%s %d", r.Job, c.second(r.Tick))
		grants[tick]++
		grants[fmt.Sprintf("%s slot %d", tick, r.Slot)]++
		if n := grants[tick]; !r.Tick.IsZero() && n > perTick {
			c.t.Errorf("P1: %s ran %d times", tick, n)
		}
		if n := grants[fmt.Sprintf("%s slot %d", tick, r.Slot)]; !r.Tick.IsZero() && n > 1 {
			c.t.Errorf("P1: %s ran %d times in slot %d", tick, n, r.Slot)
		}
		if r.from.Before(r.Tick) {
			c.t.Errorf("P2: %s ran %v early", tick, r.Tick.Sub(r.from))
		}
		beside := 0
		for _, o := range all[:i] {
			if o.to.IsZero() || o.to.After(r.from) {
				beside++
			}
		}
		if beside >= parallel {
			c.t.Errorf("P3: %s began beside %d others", tick, beside)
		}
		if parallel == 1 && r.Token <= newest {
			c.t.Errorf("P4: %s has token %d after %d", tick, r.Token, newest)
		}
		newest = r.Token
	}
}

// spelled are schedules by hand: functions that return whether an instant is a tick, without any parser.
var spelled = map[string]func(t time.Time) bool{
	"often":       func(t time.Time) bool { return t.Second()%2 == 0 },
	"overlaps":    func(t time.Time) bool { return t.Second()%5 == 0 },
	"parallel":    func(t time.Time) bool { return t.Second()%10 == 0 },
	"short-lease": func(t time.Time) bool { return t.Second()%10 == 0 },
	"queues":      func(t time.Time) bool { return t.Second()%5 == 0 },
	"replaces":    func(t time.Time) bool { return t.Second()%10 == 0 },
	"pooled":      func(t time.Time) bool { return t.Second()%10 == 0 },
	"caught-up":   func(t time.Time) bool { return t.Second()%10 == 0 },
	"stubborn":    func(t time.Time) bool { return t.Second() == 0 },
	"stumbles":    func(t time.Time) bool { return t.Second()%20 == 0 },
}

// due lists the ticks of a job after the start of the test up to an instant, second by second.
func (c *cluster) due(job string, until time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for t := c.start.Add(time.Second); !t.After(until); t = t.Add(time.Second) {
			if spelled[job](t.UTC()) && !yield(t) {
				return
			}
		}
	}
}
