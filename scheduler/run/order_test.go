package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	goredis "github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/lease/redis"
	"github.com/cronclave/cronclave/locking"
)

// An order has the records that a journal has received and the releases that Redis was asked for, in their order.
type order struct {
	t        *testing.T
	x        *Executor
	elector  *election.Elector
	stop     context.Context // ends by cancel, which stops the run
	cancel   context.CancelFunc
	releases map[any]bool // the scripts that release a lease

	mu     sync.Mutex
	away   bool // Redis does not answer
	silent bool // the journal does not answer
	events []string
}

const released = "released"

func (o *order) note(event string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, event)
}

// Record keeps the outcomes of final records.
func (o *order) Record(_ context.Context, records []Record) error {
	o.mu.Lock()
	silent := o.silent
	o.mu.Unlock()
	if silent {
		return errors.New("nobody is at home")
	}
	for _, r := range records {
		if r.Outcome != Running && !r.Retried {
			o.note(string(r.Outcome))
		}
	}
	return nil
}

func (o *order) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (o *order) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if err := o.see(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (o *order) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if err := o.see(cmds...); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// see notes a release of the run's lease, and with it the records that only wait for the journal.
func (o *order) see(cmds ...goredis.Cmder) error {
	for _, cmd := range cmds {
		if !slices.ContainsFunc(cmd.Args(), func(arg any) bool { return o.releases[arg] }) || !strings.Contains(fmt.Sprint(cmd.Args()), election.JobLock("j")) {
			continue
		}
		o.x.recorder.mu.Lock()
		for key := range o.x.recorder.pending {
			if key.runID == "run" && key.outcome != Running { // a try has a longer id
				o.note("queued " + string(key.outcome))
			}
		}
		o.x.recorder.mu.Unlock()
		o.note(released)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.away {
		return errors.New("the wire is cut")
	}
	return nil
}

// lose makes the lease of the run end, because it is not renewed.
func (o *order) lose() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = true
}

// inOrder runs a test in a bubble, with an executor whose journal and Redis report to an order.
func inOrder(t *testing.T, test func(o *order)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := embedded.Start(embedded.Config{DialOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		scripts, start := redis.NewScripts(), time.Now()
		o := &order{t: t, releases: map[any]bool{}}
		o.stop, o.cancel = context.WithCancel(context.Background())
		for _, s := range []*redis.Script{scripts.Release, scripts.Release.Batch, scripts.ReleaseCompact} {
			o.releases[s.SHA], o.releases[s.Text] = true, true
		}
		rdb := goredis.NewClient(&goredis.Options{Addr: server.Addr(), Dialer: server.Dial, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
		rdb.AddHook(o)
		locks, err := locking.New(locking.Config{Redis: rdb, Owner: "r", Clock: func() time.Duration { return time.Since(start) }})
		if err != nil {
			t.Fatal(err)
		}
		if o.elector, err = election.New(election.Config{Locks: locks}); err != nil {
			t.Fatal(err)
		}
		abort, kill := context.WithCancel(context.Background())
		o.x = NewExecutor(Config{Replica: "r", Logger: hclog.NewNullLogger(), Now: time.Now, Abort: abort, Journal: o, Pools: o.elector})
		end := o.x.StartRecorder()
		defer func() {
			o.mu.Lock()
			o.away, o.silent = false, false
			o.mu.Unlock()
			end()
			kill()
			_ = locks.Close()
			_ = rdb.Close()
			server.Close()
			pass(time.Minute) // timers of the executor end
		}()
		test(o)
	})
}

// execute executes a run with a lease of 9s, and returns its outcome.
func (o *order) execute(job Job, edit func(*Grant)) Record {
	o.t.Helper()
	job.Lease, job.KillGrace, job.RetryPause = 9*time.Second, time.Second, func(int) time.Duration { return time.Second }
	r := o.elector.Claim(context.Background(), []election.Claim{{Lock: election.JobLock("j"), ID: "run", Trigger: Scheduled, Slots: 1, Lease: job.Lease}})[0]
	if r.Verdict != election.Granted {
		o.t.Fatalf("%+v", r)
	}
	g := &Grant{Job: &job, Term: election.TermOf(r), Run: Run{ID: "run", Job: "j", Tick: time.Now(), Trigger: Scheduled, Slots: 1, Attempt: 1, Token: election.TermOf(r).Token()}}
	if edit != nil {
		edit(g)
	}
	defer o.cancel()
	return o.x.Execute(o.stop, g).Record
}

func failing(context.Context, *Run) error { return errors.New("no") }

func untilStopped(ctx context.Context, _ *Run) error { <-ctx.Done(); return context.Cause(ctx) }

// The final record of a run is written before the lease is released, however the run ends; while the journal does not answer, the recorder has it by
// then. Otherwise a run whose replica died in between would stay "running" in the history for ever.
// Promise: P6
func TestRunIsRecordedBeforeItsLeaseIsReleased(t *testing.T) {
	recovered := func(time.Time, int) bool { return true }
	pooled := Job{Runner: Func(failing), Pool: "p", PoolSlots: 1, PoolWait: 2 * time.Second}
	for _, tc := range []struct {
		name string
		want Outcome
		job  Job
		edit func(o *order, g *Grant)
		then func(o *order) // a second after the start
	}{
		{"ok", OK, Job{Runner: Func(func(context.Context, *Run) error { return nil })}, nil, nil},
		{"ok, and followed", OK, Job{Runner: Func(func(context.Context, *Run) error { return nil })}, func(_ *order, g *Grant) { g.Followed = true }, nil},
		{"failed", Failed, Job{Runner: Func(failing)}, nil, nil},
		{"failed, and followed", Failed, Job{Runner: Func(failing)}, func(_ *order, g *Grant) { g.Followed = true }, nil},
		{"panicked", Failed, Job{Runner: Func(func(context.Context, *Run) error { panic("no") })}, nil, nil},
		{"tries used up", Failed, Job{Runner: Func(failing), Retries: 2}, nil, nil},
		{"timeout", TimedOut, Job{Runner: Func(untilStopped), Timeout: 2 * time.Second}, nil, nil},
		{"canceled by a user", Canceled, Job{Runner: Func(untilStopped)}, nil, func(o *order) {
			if _, err := o.elector.Cancel(context.Background(), "j", "run"); err != nil {
				o.t.Error(err)
			}
		}},
		{"canceled by its caller", Canceled, Job{Runner: Func(untilStopped)}, nil, func(o *order) { o.cancel() }},
		{"canceled between tries", Canceled, Job{Runner: Func(failing), Retries: 9}, nil, func(o *order) {
			if _, err := o.elector.Cancel(context.Background(), "j", "run"); err != nil {
				o.t.Error(err)
			}
		}},
		{"drained", Canceled, Job{Runner: Func(untilStopped)}, nil, func(o *order) { o.x.Drain(3 * time.Second) }},
		{"drained, and handed over", Canceled, Job{Runner: Func(untilStopped), Recovers: recovered}, nil, func(o *order) { o.x.Drain(3 * time.Second) }},
		{"drained between tries, and handed over", Failed, Job{Runner: Func(failing), Retries: 9, Recovers: recovered}, nil, func(o *order) { o.x.Drain(3 * time.Second) }},
		{"lost", Lost, Job{Runner: Func(untilStopped)}, nil, (*order).lose},
		{"lost, and handed over", Lost, Job{Runner: Func(untilStopped), Recovers: recovered}, nil, (*order).lose},
		{"no slot of the pool", Missed, pooled, func(o *order, _ *Grant) { o.fillPool(pooled) }, nil},
		{"canceled while it waits for the pool", Canceled, pooled, func(o *order, _ *Grant) { o.fillPool(pooled) }, func(o *order) { o.cancel() }},
		{"requested, and never begun", Missed, Job{Runner: Func(func(context.Context, *Run) error { return ErrNotStarted }), StartTimeout: time.Second},
			func(_ *order, g *Grant) { g.Insist, g.Run.Trigger = time.Now().Add(5*time.Second), Manual }, nil},
	} {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, journal away %v", tc.name, silent), func(t *testing.T) {
				inOrder(t, func(o *order) {
					o.silent = silent
					later := time.AfterFunc(1500*time.Millisecond, func() {
						if tc.then != nil {
							tc.then(o)
						}
					})
					defer later.Stop()
					r := o.execute(tc.job, func(g *Grant) {
						if tc.edit != nil {
							tc.edit(o, g)
						}
					})
					if r.Outcome != tc.want {
						t.Fatalf("ended as %s (%s)", r.Outcome, r.Reason)
					}
					o.mu.Lock()
					defer o.mu.Unlock()
					want := string(tc.want)
					if silent {
						want = "queued " + want
					}
					if record, release := slices.Index(o.events, want), slices.Index(o.events, released); record < 0 || release < record {
						t.Errorf("want %q before %q: %q", want, released, o.events)
					}
				})
			})
		}
	}
}

// An untidy runner leaves a process behind when its work is killed for its lease.
type untidy struct{}

func (untidy) Run(ctx context.Context, _ *Run) Result {
	<-ctx.Done()
	return Result{Err: ErrLost, LeftBehind: "1 process left behind"}
}

// The record of a lost run says why its lease ended, beside what the run itself left.
func TestRecordOfALostRunSaysWhy(t *testing.T) {
	stubborn := func(_ context.Context, r *Run) error { <-r.Kill.Done(); return nil }
	for name, tc := range map[string]struct {
		runner Runner
		want   string
	}{
		"obeys":            {Func(untilStopped), "stopped before the lease ended, because it was not renewed"},
		"leaves a process": {untidy{}, "stopped before the lease ended, because it was not renewed; 1 process left behind"},
		"must be killed":   {Func(stubborn), "stopped before the lease ended, because it was not renewed"},
	} {
		t.Run(name, func(t *testing.T) {
			inOrder(t, func(o *order) {
				later := time.AfterFunc(1500*time.Millisecond, o.lose)
				defer later.Stop()
				if r := o.execute(Job{Runner: tc.runner}, nil); r.Outcome != Lost || r.Detail != tc.want {
					t.Errorf("%s, %q, want %q", r.Outcome, r.Detail, tc.want)
				}
			})
		})
	}
}

// The reason for which a lease ended is told by the names that users know.
func TestLossIsExplainedByItsCause(t *testing.T) {
	inOrder(t, func(o *order) {
		r := o.elector.Claim(context.Background(), []election.Claim{{Lock: election.JobLock("j"), ID: "run", Trigger: Scheduled, Slots: 1, Lease: 9 * time.Second}})[0]
		if r.Verdict != election.Granted {
			t.Fatalf("%+v", r)
		}
		e := &execution{Grant: &Grant{Term: election.TermOf(r)}, record: Record{Outcome: Lost, Detail: "1 process left behind"}}
		if err := e.Term.End(context.Background()); err != nil {
			t.Fatal(err)
		}
		e.explainLoss()
		if want := context.Cause(e.Term.Context()).Error() + "; 1 process left behind"; e.record.Detail != want {
			t.Errorf("%q, want %q", e.record.Detail, want)
		}
	})
}

// fillPool takes the only slot of a job's pool.
func (o *order) fillPool(job Job) {
	job.Lease = time.Minute
	if _, ok, err := o.elector.TryAcquirePool(context.Background(), job.PoolEntry("other")); !ok || err != nil {
		o.t.Fatal(ok, err)
	}
}
