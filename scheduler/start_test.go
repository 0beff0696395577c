package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// machine is what the jobs of some replicas are started on. It may not be able to.
type machine struct {
	mu    sync.Mutex
	sick  map[string]bool // replicas where no program can be started
	hangs chan struct{}   // starts on a sick replica hang until it is closed; nil: they fail
	tried map[string]int  // starts by replica
}

func newMachine(sick ...string) *machine {
	m := &machine{sick: map[string]bool{}, tried: map[string]int{}}
	for _, name := range sick {
		m.sick[name] = true
	}
	return m
}

func (m *machine) isSick(replica string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sick[replica]
}

func (m *machine) heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.sick)
}

func (m *machine) tries(replica string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tried[replica]
}

var errNoProcess = errors.New("fork: resource temporarily unavailable")

// on has a job's runs started on the machine.
func (m *machine) on(j *scheduler.Job) {
	j.Runner = startedOn{m, j.Runner}
	j.StartTimeout = 3 * time.Second
}

// probing has a replica probe the machine.
func (m *machine) probing(cfg *scheduler.Config) {
	name := cfg.Replica
	cfg.Probe = func() error {
		if m.isSick(name) {
			return errNoProcess
		}
		return nil
	}
}

// startsOthers has a replica's probe succeed.
func startsOthers(cfg *scheduler.Config) { cfg.Probe = func() error { return nil } }

type startedOn struct {
	machine *machine
	scheduler.Runner
}

func (s startedOn) Run(ctx context.Context, current *scheduler.Run) scheduler.Result {
	m := s.machine
	m.mu.Lock()
	m.tried[current.Replica]++
	m.mu.Unlock()
	sick := m.isSick(current.Replica)
	if sick && m.hangs != nil {
		<-m.hangs
	}
	if err := current.Begin(); err != nil {
		return scheduler.Result{Err: err}
	}
	if sick && m.hangs == nil {
		return scheduler.Result{Err: fmt.Errorf("%w: %w", run.ErrNotStarted, errNoProcess)}
	}
	current.Began()
	return s.Runner.Run(ctx, current)
}

// onceEach demands that each tick ran once, and as its first attempt.
func onceEach(t *testing.T, c *cluster, job string, ticks []int) {
	t.Helper()
	got := c.ticks(job)
	slices.Sort(got)
	want(t, "ticks that ran", got, ticks)
	for _, run := range c.runs(job) {
		want(t, "attempt", run.Attempt, 1)
	}
}

// A replica that can't start programs leaves its ticks to the others, claims no more, and goes on when it can again.
// Promise: P5
func TestReplicaThatStartsNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		m := newMachine("r0")
		jobs := []scheduler.Job{c.job("j", "* * * * * *", 100*time.Millisecond, m.on)}
		all := c.joinAll(3, jobs, m.probing)
		c.at(30500 * time.Millisecond)
		onceEach(t, c, "j", seconds(1, 30, 1))
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 30})
		want(t, "why r0 claims nothing", all[0].Unable(), errNoProcess.Error())
		want(t, "why r1 claims nothing", all[1].Unable(), "")
		if n := m.tries("r0"); n == 0 || n > 2 {
			t.Errorf("the sick replica has tried %d starts", n)
		}
		m.heal()
		c.at(100500 * time.Millisecond) // the pause is a minute at most
		want(t, "why r0 claims nothing", all[0].Unable(), "")
		if n := m.tries("r0"); n < 5 {
			t.Errorf("a replica that was sick has tried %d starts", n)
		}
		onceEach(t, c, "j", seconds(1, 100, 1))
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 100})
	})
}

// TestOnlyReplicaStartsNothing: where no other replica is there the tick waits for this one.
func TestOnlyReplicaStartsNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		m := newMachine("r")
		c.join("r", []scheduler.Job{c.job("j", "*/20 * * * * *", time.Second, m.on), c.job("short", "*/20 * * * * *", time.Second, m.on, startDeadline(2*time.Second))}, m.probing)
		c.at(30 * time.Second)
		want(t, "runs", len(c.runs("j")), 0)
		m.heal()
		c.at(39 * time.Second)
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 1})
		want(t, "outcomes", c.outcomes("short"), map[string]int{"missed capacity": 1})
		c.at(55 * time.Second)
		onceEach(t, c, "j", []int{20, 40})
		onceEach(t, c, "short", []int{40})
	})
}

// TestStartThatHangs: a grant whose work has not begun in time is given back, and the work never begins after that.
// Promise: P1
func TestStartThatHangs(t *testing.T) {
	inCluster(t, func(c *cluster) {
		m := newMachine("r0")
		m.hangs = make(chan struct{})
		jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second, m.on), c.job("other", "* * * * * *", 100*time.Millisecond)}
		all := c.joinAll(2, jobs, startsOthers, c.ranked)
		c.at(95 * time.Second)
		onceEach(t, c, "j", seconds(10, 90, 10))
		for _, run := range c.runs("j") {
			if late := run.from.Sub(run.Tick); late > 3350*time.Millisecond {
				t.Errorf("the tick of %v ran %v late", run.Tick, late)
			}
		}
		want(t, "starts that hang", m.tries("r0"), 1) // the place of the first one is held
		want(t, "why r0 claims nothing", all[0].Unable(), "")
		close(m.hangs)
		m.heal()
		c.at(125 * time.Second)
		onceEach(t, c, "j", seconds(10, 120, 10))
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 12})
		onceEach(t, c, "other", seconds(1, 124, 1))
		if n := m.tries("r0"); n < 2 {
			t.Errorf("%d starts on a replica that is well again", n)
		}
	})
}

// confirmsLate is a Runner whose work begins in time, and that learns of it a moment after the time for that: its process stood still in between.
type confirmsLate struct{ scheduler.Runner }

func (c confirmsLate) Run(ctx context.Context, run *scheduler.Run) scheduler.Result {
	if err := run.Begin(); err != nil {
		return scheduler.Result{Err: err}
	}
	time.Sleep(3100 * time.Millisecond)
	run.Began()
	return c.Runner.Run(ctx, run)
}

// A run whose work has begun is not stopped because its replica stood still before it learned of the start.
func TestStartIsConfirmedLate(t *testing.T) {
	inCluster(t, func(c *cluster) {
		late := func(j *scheduler.Job) { j.Runner, j.StartTimeout = confirmsLate{j.Runner}, 3*time.Second }
		c.join("r", []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second, late)})
		c.at(38 * time.Second)
		onceEach(t, c, "j", []int{10, 20, 30})
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 3})
	})
}

// hangsAfterBegin is a Runner on one replica whose work never begins, although the step to it was taken in time.
type hangsAfterBegin struct {
	scheduler.Runner
	replica string
}

func (h hangsAfterBegin) Run(ctx context.Context, current *scheduler.Run) scheduler.Result {
	if err := current.Begin(); err != nil {
		return scheduler.Result{Err: err}
	}
	if current.Replica == h.replica {
		<-current.Kill.Done()
		return scheduler.Result{Err: fmt.Errorf("%w: %w", run.ErrNotStarted, errNoProcess)}
	}
	current.Began()
	return h.Runner.Run(ctx, current)
}

// A start that hangs in its last step ends soon after the time for it, and another replica runs the tick.
// Promise: P5
func TestStartThatHangsInItsLastStep(t *testing.T) {
	inCluster(t, func(c *cluster) {
		hangs := func(j *scheduler.Job) { j.Runner, j.StartTimeout = hangsAfterBegin{j.Runner, "r0"}, 3*time.Second }
		c.joinAll(2, []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second, hangs)}, startsOthers, c.ranked)
		c.at(38 * time.Second)
		onceEach(t, c, "j", []int{10, 20, 30})
		for _, run := range c.runs("j") {
			if late := run.from.Sub(run.Tick); late > 3600*time.Millisecond {
				t.Errorf("the tick of %v ran %v late", run.Tick, late)
			}
		}
	})
}

// A replica whose starts hang leaves the ticks of all its jobs to the others after the first such start, as a replica whose starts fail does.
// Promise: P5
func TestReplicaWhoseStartsHang(t *testing.T) {
	inCluster(t, func(c *cluster) {
		m := newMachine("r0")
		m.hangs = make(chan struct{})
		var jobs []scheduler.Job
		for i := range 5 {
			jobs = append(jobs, c.job(fmt.Sprint("j", i), fmt.Sprintf("%d-59/10 * * * * *", 2*i+1), time.Second, m.on))
		}
		all := c.joinAll(2, jobs, m.probing, c.ranked)
		c.at(99500 * time.Millisecond)
		if n := m.tries("r0"); n == 0 || n > 2 { // another one may be due before the first is given up
			t.Errorf("%d starts hang", n)
		}
		want(t, "why r0 claims nothing", all[0].Unable(), errNoProcess.Error())
		for i := range 5 {
			onceEach(t, c, fmt.Sprint("j", i), seconds(2*i+1, 91+2*i, 10))
		}
		close(m.hangs)
		m.heal()
		c.at(200 * time.Second)
		want(t, "why r0 claims nothing", all[0].Unable(), "")
		if n := m.tries("r0"); n < 5 {
			t.Errorf("%d starts on a replica that is well again", n)
		}
	})
}

// A run that hangs before it has begun holds up no drain.
func TestDrainDoesNotWaitForAStart(t *testing.T) {
	inCluster(t, func(c *cluster) {
		m := newMachine("r")
		m.hangs = make(chan struct{})
		defer close(m.hangs)
		r := c.join("r", []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second, m.on)})
		c.at(15 * time.Second) // given back, and its place is held
		r.leave()
		if d := time.Since(c.start); d > 15100*time.Millisecond {
			t.Errorf("the drain took until %v", d)
		}
		want(t, "runs", len(c.runs("j")), 0)
	})
}

// A single job that is not started is left to other replicas, and the other jobs of the replica run.
// Promise: P5
func TestJobThatIsNotStarted(t *testing.T) {
	inCluster(t, func(c *cluster) {
		m := newMachine("r0")
		jobs := []scheduler.Job{c.job("j", "* * * * * *", 100*time.Millisecond, m.on), c.job("other", "* * * * * *", 100*time.Millisecond)}
		all := c.joinAll(2, jobs, startsOthers, c.ranked)
		c.at(20500 * time.Millisecond)
		onceEach(t, c, "j", seconds(1, 20, 1))
		onceEach(t, c, "other", seconds(1, 20, 1))
		want(t, "why r0 claims nothing", all[0].Unable(), "")
		if n := m.tries("r0"); n == 0 || n > 6 { // after pauses of 1, 2, 4, 8 s
			t.Errorf("%d starts of the job on a replica that can't start it", n)
		}
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 20})
	})
}

// A recovery that is not started is left to another replica, and is no attempt.
// Promise: P5
func TestRecoveryThatIsNotStarted(t *testing.T) {
	inCluster(t, func(c *cluster) {
		m := newMachine("r1")
		job := c.job("j", "0 * * * * *", 20*time.Second, m.on, lease(2*time.Second), recovers(1))
		holder := c.join("r0", []scheduler.Job{job})
		c.at(62 * time.Second)
		holder.die()
		c.join("r1", []scheduler.Job{job}, m.probing)
		c.at(70 * time.Second)
		want(t, "runs", len(c.runs("j")), 1)
		c.join("r2", []scheduler.Job{job}, m.probing)
		c.at(110 * time.Second)
		runs := c.runs("j")
		want(t, "runs", len(runs), 2)
		want(t, "the recovery", []any{runs[1].Replica, runs[1].Attempt, runs[1].Trigger}, []any{"r2", 2, "recovery"})
		if n := m.tries("r1"); n == 0 {
			t.Error("the sick replica has not tried to recover the run")
		}
	})
}

// TestRetryThatIsNotStarted: a further try waits until it can be started, and keeps its number.
func TestRetryThatIsNotStarted(t *testing.T) {
	inCluster(t, func(c *cluster) {
		m := newMachine()
		job := c.job("j", "0 * * * * *", time.Second, m.on, m.sickens)
		job.Retry = scheduler.Retry{Max: 2, Delay: time.Second}
		c.join("r", []scheduler.Job{job}, m.probing)
		c.at(80 * time.Second)
		want(t, "runs", len(c.runs("j")), 1)
		m.heal()
		c.at(110 * time.Second)
		runs := c.runs("j")
		want(t, "runs", len(runs), 2)
		want(t, "attempt", runs[1].Attempt, 2)
		want(t, "outcomes", c.outcomes("j"), map[string]int{"failed bad luck": 1, "ok": 1})
	})
}

// TestRetryThatIsNotStartedIsLeft: the attempt of the recovery has its number, and is no recovery too many.
// Promise: P5
func TestRetryThatIsNotStartedIsLeft(t *testing.T) {
	inCluster(t, func(c *cluster) {
		m := newMachine()
		job := c.job("j", "0 * * * * *", time.Second, m.on, recovers(1), m.sickens)
		job.Retry = scheduler.Retry{Max: 1, Delay: time.Second}
		c.joinAll(2, []scheduler.Job{job}, m.probing)
		c.at(179 * time.Second)
		want(t, "told", c.attemptsOf("j", 60), []string{"1 schedule failed bad luck", "2 recovery ok"})
	})
}

// sickens has a job's first attempt fail, and its replica start nothing after that.
func (m *machine) sickens(j *scheduler.Job) {
	inner := j.Runner
	j.Runner = runnerFunc(func(ctx context.Context, run *scheduler.Run) scheduler.Result {
		result := inner.Run(ctx, run)
		if result.Err == nil && run.Attempt == 1 {
			m.mu.Lock()
			m.sick[run.Replica] = true
			m.mu.Unlock()
			result.Err = errors.New("bad luck")
		}
		return result
	})
}

type runnerFunc func(ctx context.Context, run *scheduler.Run) scheduler.Result

func (f runnerFunc) Run(ctx context.Context, run *scheduler.Run) scheduler.Result { return f(ctx, run) }

// TestRequestOnAReplicaThatStartsNothing: a request is left to another replica; one that was begun is started as soon as that is possible.
func TestRequestOnAReplicaThatStartsNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		m := newMachine("r0")
		jobs := []scheduler.Job{c.job("report", yearly, time.Second, m.on)}
		c.join("r0", jobs, b.serve, m.probing)
		c.at(time.Second)
		b.ask("q1", "report")
		c.at(5 * time.Second)
		want(t, "runs", len(c.runs("report")), 0)
		c.join("r1", jobs, b.serve, m.probing)
		c.at(10 * time.Second)
		b.want("q1", run.Running, "")
		want(t, "runs", len(c.runs("report")), 1)
		want(t, "starts on the sick replica", m.tries("r0"), 0) // the probe came first
	})
}

// A request that has begun is started later by the same replica if its start fails, since no other replica can have it any more.
// Promise: P5
func TestBegunRequestIsStartedLater(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		m := newMachine("r")
		healthy := func(cfg *scheduler.Config) { cfg.Probe = func() error { return nil } }
		c.join("r", []scheduler.Job{c.job("report", yearly, time.Second, m.on)}, b.serve, healthy)
		c.at(time.Second)
		b.ask("q1", "report")
		c.at(4 * time.Second)
		want(t, "runs", len(c.runs("report")), 0)
		m.heal()
		c.at(10 * time.Second) // it starts at the eighth second, and takes one
		want(t, "outcomes", c.outcomes("report"), map[string]int{"ok": 1})
		want(t, "attempt", c.runs("report")[0].Attempt, 1)
		m.mu.Lock()
		m.sick["r"] = true
		m.mu.Unlock()
		b.ask("q2", "report")
		c.at(5 * time.Minute)
		want(t, "outcomes", c.outcomes("report"), map[string]int{"ok": 1, "missed capacity": 1})
	})
}
