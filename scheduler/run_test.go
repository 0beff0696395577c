package scheduler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/logging"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// Each way in which a run ends has its record.
func TestResults(t *testing.T) {
	code, broken := 3, errors.New("broken pipe")
	for _, tc := range []struct {
		name    string
		runner  scheduler.Runner
		outcome run.Outcome
		reason  string
	}{
		{"ok", scheduler.Func(func(context.Context, *scheduler.Run) error { return nil }), run.OK, ""},
		{"an error", scheduler.Func(func(context.Context, *scheduler.Run) error { return broken }), run.Failed, "broken pipe"},
		{"a panic", scheduler.Func(func(context.Context, *scheduler.Run) error { panic("no luck") }), run.Failed, "panic: no luck"},
		{"a panic of a runner", panics{}, run.Failed, "panic: runtime error"},
		{"an end of the goroutine", scheduler.Func(func(context.Context, *scheduler.Run) error {
			runtime.Goexit()
			return nil
		}), run.Failed, "runtime.Goexit"},
		{"a command's", fixed{scheduler.Result{Err: errors.New("exit 3"), ExitCode: &code, Signal: "SIGHUP", Output: []byte("tail")}}, run.Failed, "exit 3"},
		{"a word of the loss", fixed{scheduler.Result{Err: fmt.Errorf("killed: %w", run.ErrLost), Signal: "SIGKILL"}}, run.Lost, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				r := c.join("r", []scheduler.Job{{Name: "j", Schedule: []string{"*/10 * * * * *"}, Runner: tc.runner}})
				c.at(25 * time.Second)
				words := c.words("j")
				want(t, "ticks told", len(words), 2)
				for _, w := range words {
					if w.Outcome != tc.outcome || !strings.Contains(string(w.Reason), tc.reason) {
						t.Errorf("told as %s", verdict(w))
					}
					if f, ok := tc.runner.(fixed); ok && (w.ExitCode != f.ExitCode || w.Signal != f.Signal || orNone(w.Output) != string(f.Output)) {
						t.Errorf("the result is %+v", w)
					}
				}
				want(t, "running", r.Running(), 0)
			})
		})
	}
}

type panics struct{}

func (panics) Run(context.Context, *scheduler.Run) scheduler.Result {
	var nothing []scheduler.Result
	return nothing[0]
}

type fixed struct{ scheduler.Result }

func (f fixed) Run(context.Context, *scheduler.Run) scheduler.Result { return f.Result }

// A function has the same data of its run as the journal.
func TestRunKnowsItself(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.join("r", []scheduler.Job{c.job("j", "*/10 * * * * *", 2*time.Second, parallel(2, 2, 2))})
		c.at(15 * time.Second)
		words := c.words("j")
		want(t, "runs", len(words), 2)
		for _, run := range c.runs("j") {
			w := words[run.ID]
			want(t, "told", []any{w.Job, w.Tick, w.Trigger, *w.Slot, w.Attempt, w.Token, w.Replica, w.Started, w.Finished},
				[]any{run.Job, run.Tick, run.Trigger, run.Slot, run.Attempt, run.Token, run.Replica, run.from, run.to})
			want(t, "the rest", []any{run.Trigger, run.Slots, run.Replica, run.Attempt}, []any{"schedule", 2, "r", 1})
		}
	})
}

// The next holder of a lock finds nothing left of the run before, however slowly that dies.
// Promise: P3
func TestRunIsOverBeforeItsLockIs(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var at atomic.Int32
		job := scheduler.Job{Name: "j", Schedule: []string{"* * * * * *"}, Timeout: time.Second, StartDeadline: time.Minute}
		job.Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
			if n := at.Add(1); n > 1 {
				t.Errorf("%d at once", n)
			}
			<-ctx.Done()
			pass(3300 * time.Millisecond) // it takes its time to die
			at.Add(-1)
			return nil
		})
		c.joinAll(3, []scheduler.Job{job})
		c.at(59*time.Second + 900*time.Millisecond)
		want(t, "outcomes", c.outcomes("j"), map[string]int{"timeout": 11, "running": 1, "skipped overlap": 47})
	})
}

// While the journal is away jobs run on, and no run waits for it twice; records are written as soon as it is back, and a drain does not hang.
// Promise: P6
func TestJournalAway(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("r", []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond)})
		c.at(10500 * time.Millisecond)
		r.mu.Lock()
		r.dead = true
		r.mu.Unlock()
		c.at(30500 * time.Millisecond)
		want(t, "ticks that ran", c.ticks("j"), seconds(1, 30, 1)) // no start waits for its record
		r.mu.Lock()
		r.dead = false
		r.mu.Unlock()
		c.at(40500 * time.Millisecond)
		told := c.told("j")
		for s := 1; s <= 40; s++ {
			if len(told[s]) != 1 || told[s][0] != "ok" {
				t.Errorf("tick %d: %v", s, told[s])
			}
		}
		r.mu.Lock()
		r.dead = true
		r.mu.Unlock()
		c.at(50500 * time.Millisecond)
		r.stop()
		<-r.done
		if d := time.Since(c.start) - 50500*time.Millisecond; d > 6*time.Second {
			t.Errorf("the drain took %v", d)
		}
	})
}

// No tick waits for the record of an abandoned run, but it is made before the run is forgotten.
// Promise: P6
func TestJournalAwayWithOrphan(t *testing.T) {
	inCluster(t, func(c *cluster) {
		job := c.job("j", "*/10 * * * * *", 5*time.Second, lease(2*time.Second))
		holder := c.join("holder", []scheduler.Job{job})
		c.at(12 * time.Second)
		holder.die()
		c.at(14 * time.Second)
		first := c.replica("first", []scheduler.Job{job})
		first.dead = true
		first.run()
		c.at(32 * time.Second)
		if n := len(c.ticks("j")); n < 3 { // 10, 20, 30
			t.Errorf("a replica without a journal ran %v", c.ticks("j"))
		}
		want(t, "orphans that wait for their record", len(first.state("j").Orphans), 1)
		first.stop()
		<-first.done
		if d := time.Since(c.start); d > 45*time.Second {
			t.Errorf("the drain ended at %v", d)
		}
		second := c.join("second", []scheduler.Job{job})
		c.at(65 * time.Second)
		want(t, "told", c.told("j")[10], []string{"abandoned"})
		want(t, "orphans that are left", len(second.state("j").Orphans), 0)
	})
}

// A run outside the schedule holds a slot like any other, or, without a lock, does not contact the server.
func TestRunNow(t *testing.T) {
	inCluster(t, func(c *cluster) {
		ctx := context.Background()
		jobs := []scheduler.Job{c.job("j", "0 0 1 * * *", 10*time.Second), c.job("failing", "0 0 1 * * *", time.Hour)}
		r, other := c.replica("r", jobs), c.replica("other", jobs)
		record, err := r.RunNow(ctx, "j", true)
		if err != nil || record.Outcome != run.OK || record.Token == 0 || record.Trigger != "manual" || !record.Tick.IsZero() {
			t.Errorf("with its lock: %+v, %v", record, err)
		}
		again, err := r.RunNow(ctx, "j", true)
		if err != nil || again.Token <= record.Token {
			t.Errorf("again: token %d after %d, %v", again.Token, record.Token, err)
		}
		want(t, "told", c.outcomes("j"), map[string]int{"ok": 2})

		began := make(chan struct{})
		go func() {
			defer close(began)
			if _, err := r.RunNow(ctx, "j", true); err != nil {
				t.Error(err)
			}
		}()
		pass(time.Second)
		if _, err := other.RunNow(ctx, "j", true); !errors.Is(err, scheduler.ErrHeld) || !strings.Contains(err.Error(), "Z unless it is renewed, is held by r") {
			t.Errorf("while another has it: %v", err)
		}
		record, err = other.RunNow(ctx, "j", false)
		if err != nil || record.Token != 0 || record.Outcome != run.OK {
			t.Errorf("without its lock: %+v, %v", record, err)
		}
		<-began

		short, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if record, err = r.RunNow(short, "failing", true); err != nil || verdict(record) != "canceled user" {
			t.Errorf("with a context that ends: %s, %v", verdict(record), err)
		}
		if _, err := r.RunNow(ctx, "nobody", true); !errors.Is(err, scheduler.ErrNoJob) {
			t.Errorf("a job that is not there: %v", err)
		}
		r.wire.silence()
		if _, err := r.RunNow(ctx, "j", true); !errors.Is(err, election.ErrUnknown) {
			t.Errorf("without a server: %v", err)
		}
		if _, err := r.RunNow(ctx, "j", false); err != nil {
			t.Errorf("without a server, which nobody asks: %v", err)
		}
	})
}

// TestNewReportsAllFaults, whatever their number.
func TestNewReportsAllFaults(t *testing.T) {
	ok := scheduler.Func(func(context.Context, *scheduler.Run) error { return nil })
	_, err := scheduler.New(scheduler.Config{MaxRunning: -1, Jobs: []scheduler.Job{
		{Name: "bad name", Schedule: []string{"* * * * *"}, Runner: ok},
		{Name: "norunner", Schedule: []string{"* * * * *"}},
		{Name: "schedule", Schedule: []string{"* * * * *", "nonsense"}, Runner: ok},
		{Name: "none", Runner: ok},
		{Name: "slots", Schedule: []string{"* * * * *"}, Runner: ok, Parallel: 2, PerTick: 3, PerReplica: 4},
		{Name: "many", Schedule: []string{"* * * * *"}, Runner: ok, Parallel: 1001},
		{Name: "lease", Schedule: []string{"* * * * *"}, Runner: ok, Lease: time.Millisecond},
		{Name: "jitter", Schedule: []string{"* * * * *"}, Runner: ok, Jitter: -1},
		{Name: "twice", Schedule: []string{"* * * * *"}, Runner: ok},
		{Name: "twice", Schedule: []string{"* * * * *"}, Runner: ok, StartDeadline: -1},
	}})
	if err == nil {
		t.Fatal("no fault was found")
	}
	for _, part := range []string{"MaxRunning", "job bad name: a name", "job norunner: Runner is missing", "job schedule: schedule",
		"job none: schedule", "PerTick is 3", "PerReplica is 4", "Parallel is 1001", "Lease is 1ms", "job jitter: Jitter",
		"job twice: there are two", "job twice: Jitter, StartDeadline and StartTimeout"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not told in:\n%v", part, err)
		}
	}
}

// results is a Runner that returns a result once it is stopped.
type results scheduler.Result

// Run waits for the stop.
func (r results) Run(ctx context.Context, _ *scheduler.Run) scheduler.Result {
	<-ctx.Done()
	time.Sleep(time.Minute)
	return scheduler.Result(r)
}

// A run whose work had ended before it was stopped has the outcome of that end, and says what it left behind. One that was killed while this process stood still has ended
// then, and not when this process went on.
// Promise: P6
func TestResultsOfWorkThatEndedBefore(t *testing.T) {
	for _, tc := range []struct {
		name            string
		result          scheduler.Result
		outcome, detail string
		finished        time.Duration // after the start
	}{
		{"stopped", scheduler.Result{}, "timeout", "", 3 * time.Minute},
		{"had ended", scheduler.Result{LeftBehind: "a process"}, "ok", "a process", 3 * time.Minute},
		{"was killed before", scheduler.Result{Err: run.ErrLost, EndedAgo: 30 * time.Second}, "timeout", "", 150 * time.Second},
		{"was killed before it began", scheduler.Result{Err: run.ErrLost, EndedAgo: time.Hour}, "timeout", "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job := scheduler.Job{Name: "j", Schedule: []string{"@yearly"}, Timeout: 2 * time.Minute, KillGrace: time.Hour, Runner: results(tc.result)}
				s, err := scheduler.New(scheduler.Config{Replica: "r", Jobs: []scheduler.Job{job}})
				if err != nil {
					t.Fatal(err)
				}
				record, err := s.RunNow(t.Context(), "j", false)
				if err != nil || string(record.Outcome) != tc.outcome || record.Detail != tc.detail {
					t.Errorf("%v: %s, detail %q, want %s, %q", err, record.Outcome, record.Detail, tc.outcome, tc.detail)
				}
				if took := record.Finished.Sub(record.Started); took != tc.finished {
					t.Errorf("finished %v after its start, want %v", took, tc.finished)
				}
			})
		})
	}
}

// jsonLog is the log of replicas in the format that users have.
type jsonLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes lines.
func (l *jsonLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// ends are the lines about ends of runs, tries and ticks: level, message, outcome, failed tries.
func (l *jsonLog) ends(t *testing.T) (all []string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		var e struct {
			Level, Msg, Outcome, Reason, Job string
			Tries                            int `json:"failed_tries"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if message, _, _ := strings.Cut(e.Msg, ":"); slices.Contains([]string{"finished", "try failed", "tick not run", "ticks missed", "not started",
			"lease lost; the run goes on"}, message) {
			tries := ""
			if e.Tries > 0 {
				tries = fmt.Sprint(" tries ", e.Tries)
			}
			all = append(all, strings.TrimSpace(e.Level+" "+message+" "+e.Outcome)+tries)
		}
	}
	return all
}

func outlives(j *scheduler.Job) { j.OutlivesLease = true }

// A run that failed for good is logged as ERROR, a run or tick that was lost or missed and may yet be made good as WARN, and an outcome that was decided
// so, or is tried again, as INFO.
func TestLevels(t *testing.T) {
	const at30 = "30 0 0 * * *"
	for _, tc := range []struct {
		name  string
		job   func(c *cluster) scheduler.Job
		act   func(c *cluster, r *replica) // at 32 s, when the run of 30 s has been on for 2 s
		until time.Duration
		want  []string
	}{
		{"ok", func(c *cluster) scheduler.Job { return c.job("j", at30, time.Second) }, nil, 40 * time.Second, []string{"info finished ok"}},
		{"failed", func(c *cluster) scheduler.Job { return c.job("j", at30, 0, c.failing(9, time.Second, false)) }, nil, 40 * time.Second, []string{"error finished failed"}},
		{"timeout", func(c *cluster) scheduler.Job {
			return c.job("j", at30, time.Hour, func(j *scheduler.Job) { j.Timeout = 3 * time.Second })
		}, nil, 40 * time.Second, []string{"error finished timeout"}},
		{"a try that is followed by a good one", func(c *cluster) scheduler.Job {
			return c.job("j", at30, 0, c.failing(2, time.Second, false), retry(3, time.Second, time.Second))
		}, nil, 40 * time.Second, []string{"info try failed failed", "info try failed failed", "info finished ok tries 2"}},
		{"the last try", func(c *cluster) scheduler.Job {
			return c.job("j", at30, 0, c.failing(9, time.Second, false), retry(1, time.Second, time.Second))
		}, nil, 40 * time.Second, []string{"info try failed failed", "error finished failed tries 1"}},
		{"canceled", func(c *cluster) scheduler.Job { return c.job("j", at30, time.Hour) },
			func(_ *cluster, r *replica) { r.cancel("j", "") }, 60 * time.Second, []string{"info finished canceled"}},
		{"drained", func(c *cluster) scheduler.Job { return c.job("j", at30, time.Hour) },
			func(_ *cluster, r *replica) { r.stop() }, 80 * time.Second, []string{"warn finished canceled"}},
		{"drained, and run again", func(c *cluster) scheduler.Job { return c.job("j", at30, time.Hour, recovers(1)) },
			func(_ *cluster, r *replica) { r.stop() }, 80 * time.Second, []string{"info finished canceled"}},
		{"lost", func(c *cluster) scheduler.Job { return c.job("j", at30, time.Hour, lease(6*time.Second)) },
			func(_ *cluster, r *replica) { r.wire.silence() }, 60 * time.Second, []string{"error finished lost"}},
		{"lost, and run again", func(c *cluster) scheduler.Job {
			return c.job("j", at30, time.Hour, recovers(1), lease(6*time.Second))
		}, func(_ *cluster, r *replica) { r.wire.silence() }, 60 * time.Second, []string{"warn finished lost"}},
		{"a lease that its run outlives", func(c *cluster) scheduler.Job {
			return c.job("j", at30, 20*time.Second, outlives, lease(6*time.Second))
		},
			func(_ *cluster, r *replica) { r.wire.silence() }, 45 * time.Second, []string{"warn lease lost; the run goes on"}},
		{"skipped", func(c *cluster) scheduler.Job { return c.job("j", "*/30 * * * * *", 25*time.Second+30*time.Second) }, nil, 61 * time.Second,
			[]string{"info tick not run skipped overlap"}},
		{"missed", func(c *cluster) scheduler.Job {
			return c.job("j", "*/30 * * * * *", 50*time.Second, startDeadline(5*time.Second), func(j *scheduler.Job) { j.Overlap = scheduler.OverlapQueue })
		}, nil, 70 * time.Second, []string{"warn tick not run missed slots"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				log := &jsonLog{}
				logger, writer := logging.New(log, logging.Options{Level: hclog.Info, JSON: true})
				defer writer.Close(context.Background())
				r := c.join("r", []scheduler.Job{tc.job(c)}, func(cfg *scheduler.Config) { cfg.Logger = logger })
				c.at(32 * time.Second)
				if tc.act != nil {
					tc.act(c, r)
				}
				c.at(tc.until)
				want(t, "logged", log.ends(t), tc.want)
			})
		})
	}
}

// TestFailedRunHasItsStreak: the log line of a run that failed has the failures before it, as they are when the run is recorded; any other line asks for none.
func TestFailedRunHasItsStreak(t *testing.T) {
	inCluster(t, func(c *cluster) {
		log := &jsonLog{}
		logger, writer := logging.New(log, logging.Options{Level: hclog.Info, JSON: true})
		defer writer.Close(context.Background())
		jobs := []scheduler.Job{c.job("bad", "30 0 0 * * *", 0, c.failing(9, time.Second, false)), c.job("good", "30 0 0 * * *", time.Second)}
		var asked []string
		c.join("r", jobs, func(cfg *scheduler.Config) {
			cfg.Logger = logger
			cfg.Streak = func(_ context.Context, job string) []any {
				c.mu.Lock()
				defer c.mu.Unlock()
				recorded := slices.ContainsFunc(c.records, func(rec run.Record) bool { return rec.Job == job && rec.Outcome == run.Failed })
				asked = append(asked, fmt.Sprint(job, " ", recorded))
				return []any{"failures", 3, "failing_since", "2026-11-27T20:00:00Z"}
			}
		})
		c.at(40 * time.Second)
		want(t, "asked", asked, []string{"bad true"})
		log.mu.Lock()
		defer log.mu.Unlock()
		var found []string
		for line := range strings.Lines(log.text.String()) {
			var e struct {
				Msg, Job string
				Failures int
				Since    string `json:"failing_since"`
			}
			if err := json.Unmarshal([]byte(line), &e); err == nil && e.Msg == "finished" {
				found = append(found, fmt.Sprint(e.Job, " ", e.Failures, " ", e.Since))
			}
		}
		slices.Sort(found)
		want(t, "logged", found, []string{"bad 3 2026-11-27T20:00:00Z", "good 0 "})
	})
}

// TestAbandonedRunsSayWhetherTheyAreRecovered has a replica die that runs a job, and reads what another records.
func TestAbandonedRunsSayWhetherTheyAreRecovered(t *testing.T) {
	for recoveries, again := range map[int]bool{0: false, 1: true} {
		t.Run(fmt.Sprint(recoveries), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				job := c.job("j", "30 0 0 * * *", time.Hour, recovers(recoveries), lease(6*time.Second))
				holder := c.join("holder", []scheduler.Job{job})
				c.at(32 * time.Second)
				c.join("other", []scheduler.Job{job})
				c.at(33 * time.Second)
				holder.die()
				c.at(55 * time.Second)
				var said []bool
				for _, r := range c.words("j") {
					if r.Outcome == run.Abandoned {
						said = append(said, r.Recovers)
					}
				}
				want(t, "recovers", said, []bool{again})
			})
		})
	}
}

func orNone(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
