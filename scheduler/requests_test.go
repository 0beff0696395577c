package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// board is where people ask for runs, and replicas say what became of it.
type board struct {
	c *cluster

	mu       sync.Mutex
	requests []scheduler.Request
	answers  map[string][]scheduler.Answer
	told     chan struct{} // closed when something is asked for
}

func (c *cluster) board() *board {
	return &board{c: c, answers: map[string][]scheduler.Answer{}, told: make(chan struct{})}
}

// requests are those of one replica, which hears of each again and again, as long as it lives.
type requests struct {
	*board
	*election.Elector
	fault func(election.Result) // when it has taken something
}

// serve has a replica handle the requests on a board.
func (b *board) serve(cfg *scheduler.Config) { b.serveWith(nil)(cfg) }

func (b *board) serveWith(fault func(election.Result)) func(cfg *scheduler.Config) {
	return func(cfg *scheduler.Config) {
		s := cfg.Claimer.(spy)
		cfg.Requests = requests{board: b, Elector: s.Elector, fault: fault}
	}
}

func (r requests) Subscribe(ctx context.Context, f func([]scheduler.Request)) {
	for ctx.Err() == nil {
		r.mu.Lock()
		var open []scheduler.Request
		for _, q := range r.requests {
			if time.Now().Before(q.Expires) {
				open = append(open, q, q)
			}
		}
		told := r.told
		r.mu.Unlock()
		if len(open) > 0 {
			f(open)
		}
		select {
		case <-ctx.Done():
		case <-told:
		case <-time.After(time.Second):
		}
	}
}

func (r requests) ClaimTrigger(ctx context.Context, e election.TriggerRequest) election.Result {
	got := r.Elector.ClaimTrigger(ctx, e)
	if r.fault != nil {
		r.fault(got)
	}
	return got
}

func (r requests) Answer(_ context.Context, a scheduler.Answer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[a.Request] = append(r.answers[a.Request], a)
	return nil
}

// ask asks for a run of a job within a minute.
func (b *board) ask(id, job string, edits ...func(*scheduler.Request)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := scheduler.Request{ID: id, Job: job, Created: time.Now(), Expires: time.Now().Add(time.Minute)}
	for _, edit := range edits {
		edit(&q)
	}
	b.requests = append(b.requests, q)
	close(b.told)
	b.told = make(chan struct{})
}

// want demands the last answers that were given.
func (b *board) want(id string, outcome run.Outcome, reason run.Reason) scheduler.Answer {
	b.c.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	final := slices.DeleteFunc(slices.Clone(b.answers[id]), func(a scheduler.Answer) bool { return a.Outcome == "" })
	if len(final) != 1 || final[0].Outcome != outcome || final[0].Reason != reason {
		b.c.t.Errorf("answers to %s: %+v, want one: %s %s", id, b.answers[id], outcome, reason)
		return scheduler.Answer{}
	}
	return final[0]
}

// yearly has no tick while a test lasts.
const yearly = "0 0 31 12 *"

// TestRequestIsRunByOne runs each of twenty trigger requests once, on one of three replicas.
// Promise: P1
func TestRequestIsRunByOne(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		c.joinAll(3, []scheduler.Job{c.job("report", yearly, time.Second)}, b.serve)
		c.at(time.Second)
		for n := range 20 {
			b.ask(fmt.Sprint("q", n), "report")
			pass(3 * time.Second)
			if runs := c.runs("report"); len(runs) != n+1 || runs[n].Trigger != "manual" || !runs[n].Tick.IsZero() || runs[n].Attempt != 1 {
				t.Fatalf("request %d: %+v", n, runs)
			}
			a := b.want(fmt.Sprint("q", n), run.Running, "")
			if run := c.runs("report")[n]; a.RunID != run.ID || a.Replica != run.Replica {
				t.Errorf("run %s of %s, answered %+v", run.ID, run.Replica, a)
			}
		}
		c.at(3 * time.Minute)
		if n := len(c.runs("report")); n != 20 {
			t.Errorf("%d runs", n)
		}
	})
}

// A request of a job with many slots is run by one replica, though nothing but the request itself keeps two from running it.
// Promise: P1
func TestParallelRequestIsRunByOne(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		c.joinAll(5, []scheduler.Job{c.job("report", yearly, time.Minute, func(j *scheduler.Job) { j.Parallel = 5 })}, b.serve)
		c.at(time.Second)
		b.ask("q", "report")
		c.at(2 * time.Minute)
		if runs := c.runs("report"); len(runs) != 1 {
			t.Errorf("%+v", runs)
		}
	})
}

// A request runs although its claimant dies, at any step from the moment at which it has the request.
// Promise: P5
func TestClaimantDiesBeforeItsRun(t *testing.T) {
	for name, claims := range map[string]bool{"before it asks for a slot": false, "when it has a slot": true} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				b := c.board()
				var dies *replica
				var taken atomic.Bool
				dies = c.replica("dies", []scheduler.Job{c.job("report", yearly, time.Second, lease(10*time.Second))},
					b.serveWith(func(r election.Result) {
						if r.Verdict != election.Granted {
							return
						}
						if taken.Store(true); !claims {
							dies.die()
						}
					}), func(cfg *scheduler.Config) {
						cfg.Claimer = fatalClaimer{cfg.Claimer.(spy), func() {
							if claims {
								dies.die()
							}
						}}
					})
				dies.run()
				c.at(time.Second)
				b.ask("q", "report")
				pass(10 * time.Millisecond)
				if !taken.Load() {
					t.Fatal("it has not taken the request")
				}
				for i := range 2 {
					c.join(fmt.Sprint("lives", i), []scheduler.Job{c.job("report", yearly, time.Second, lease(10*time.Second))}, b.serve)
				}
				pass(5 * time.Second)
				c.at(50 * time.Second)
				runs := c.runs("report")
				if len(runs) != 1 || runs[0].Replica == "dies" {
					t.Fatalf("runs: %+v", runs)
				}
				if took := runs[0].from.Sub(c.start); !claims && took > 8*time.Second || took > 14*time.Second {
					t.Errorf("it took until %v", took)
				}
				b.want("q", run.Running, "")
			})
		})
	}
}

// fatalClaimer is one whose replica dies when it has claimed a slot.
type fatalClaimer struct {
	spy
	then func()
}

func (f fatalClaimer) Claim(ctx context.Context, claims []election.Claim) []election.Result {
	got := f.spy.Claim(ctx, claims)
	f.then()
	return got
}

// A claimant that stands still when it has the request, or also a slot, finds, when it goes on, that another replica has the request.
// Promise: P1
func TestFrozenClaimantDoesNotRun(t *testing.T) {
	for name, claims := range map[string]bool{"before it asks for a slot": false, "when it has a slot": true} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				b := c.board()
				jobs := []scheduler.Job{c.job("report", yearly, time.Second, func(j *scheduler.Job) { j.Parallel = 3 })}
				var slow *replica
				freeze := func() {
					slow.wire.silence()
					pass(20 * time.Second)
					slow.wire.restore()
				}
				slow = c.replica("slow", jobs, b.serveWith(func(r election.Result) {
					if r.Verdict == election.Granted && !claims {
						freeze()
					}
				}), func(cfg *scheduler.Config) {
					cfg.Claimer = fatalClaimer{cfg.Claimer.(spy), func() {
						if claims {
							freeze()
						}
					}}
				})
				slow.run()
				c.at(time.Second)
				b.ask("q", "report")
				pass(time.Second)
				c.join("other", jobs, b.serve)
				c.at(2 * time.Minute)
				if runs := c.runs("report"); len(runs) != 1 || runs[0].Replica != "other" {
					t.Errorf("%+v", runs)
				}
				b.want("q", run.Running, "")
			})
		})
	}
}

// TestRequestFindsAllSlotsHeld skips a trigger request as `overlap` while all slots of the job are held.
// Promise: P6
func TestRequestFindsAllSlotsHeld(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		c.joinAll(2, []scheduler.Job{c.job("report", yearly, 30*time.Second)}, b.serve)
		c.at(time.Second)
		b.ask("first", "report")
		pass(time.Second)
		b.ask("second", "report")
		pass(time.Second)
		b.want("first", run.Running, "")
		b.want("second", run.Skipped, "overlap")
		if r := c.words("report")["second"]; r.Outcome != run.Skipped || r.Trigger != "manual" {
			t.Errorf("recorded: %+v", r)
		}
	})
}

// A request waits for a slot where the job's ticks do, but not beyond its own expiry.
// Promise: P5
func TestRequestWaitsForASlot(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		c.joinAll(2, []scheduler.Job{c.job("report", yearly, 40*time.Second, func(j *scheduler.Job) { j.Overlap = scheduler.OverlapQueue })}, b.serve)
		for i, id := range []string{"first", "second", "third"} {
			c.at(time.Duration(i+1) * time.Second)
			b.ask(id, "report")
		}
		c.at(2 * time.Minute)
		b.want("first", run.Running, "")
		b.mu.Lock()
		defer b.mu.Unlock()
		won, lost := 0, 0
		for _, id := range []string{"second", "third"} {
			for _, a := range b.answers[id] {
				switch {
				case a.Outcome == run.Running:
					won++
				case a.Outcome == run.Missed:
					lost++
				}
			}
		}
		if won != 1 || lost != 1 {
			t.Errorf("of those that waited: %v", b.answers)
		}
		if runs := c.runs("report"); len(runs) != 2 || runs[1].from.Before(runs[0].to) {
			t.Errorf("%+v", runs)
		}
	})
}

// TestLoneReplicaThatRunsTheJobSkips, though it has no place for it.
func TestLoneReplicaThatRunsTheJobSkips(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		c.joinAll(1, []scheduler.Job{c.job("one", yearly, 30*time.Second),
			c.job("two", yearly, 30*time.Second, func(j *scheduler.Job) { j.Parallel = 2 })}, b.serve)
		c.at(time.Second)
		for _, job := range []string{"one", "two"} {
			b.ask(job+" first", job)
			pass(time.Second)
			b.ask(job+" second", job)
			pass(time.Second)
		}
		b.want("one second", run.Skipped, "overlap")
		c.at(50 * time.Second)
		if runs := c.runs("two"); len(runs) != 2 || runs[1].from.Before(runs[0].to) { // the second slot is for another replica, if there is one
			t.Errorf("%+v", runs)
		}
		b.want("two second", run.Running, "")
	})
}

// TestRequestWithATick runs a trigger request for a past tick beside the schedule, and refuses other instants.
// Promise: P6
func TestRequestWithATick(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		c.joinAll(3, []scheduler.Job{c.job("report", "*/10 * * * * *", time.Second)}, b.serve)
		c.at(25 * time.Second)
		past := c.start.Add(10 * time.Second)
		b.ask("past", "report", func(q *scheduler.Request) { q.Tick = past })
		b.ask("none", "report", func(q *scheduler.Request) { q.Tick = past.Add(time.Second) })
		b.ask("future", "report", func(q *scheduler.Request) { q.Tick = past.Add(time.Minute) })
		c.at(45 * time.Second)
		if got, want := c.ticks("report"), []int{10, 20, 10, 30, 40}; !slices.Equal(got, want) { // the ledger is left alone
			t.Errorf("ticks %v, want %v", got, want)
		}
		if runs := c.runs("report"); runs[2].Trigger != "manual" || runs[3].Trigger != "schedule" {
			t.Errorf("%+v", runs)
		}
		b.want("past", run.Running, "")
		b.want("none", run.Failed, "2000-01-01T00:00:11Z is no tick of the job")
		b.want("future", run.Failed, "2000-01-01T00:01:10Z is yet to come")
		for _, r := range c.words("report") {
			if r.Outcome == run.Failed {
				t.Errorf("what is no tick, or none yet, has a record: %+v", r)
			}
		}
	})
}

// TestRequestExpires records a trigger request that nothing could start within a minute as missed.
// Promise: P6
func TestRequestExpires(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		jobs := []scheduler.Job{c.job("report", yearly, time.Second)}
		for i := range 3 {
			c.join(fmt.Sprint("r", i), jobs, b.serve, func(cfg *scheduler.Config) { cfg.Ready = func() bool { return false } })
		}
		c.at(time.Second)
		b.ask("q", "report")
		c.at(59 * time.Second)
		c.join("late", jobs, b.serve, func(cfg *scheduler.Config) {
			cfg.Ready = func() bool { return time.Since(c.start) > 61001*time.Millisecond }
		})
		c.at(2 * time.Minute)
		if runs := c.runs("report"); len(runs) != 0 {
			t.Errorf("%+v", runs)
		}
		b.want("q", run.Missed, "late")
		if got := c.outcomes("report"); got["missed late"] != 1 {
			t.Errorf("recorded: %v", got)
		}
	})
}

// A replica that drains leaves requests to the others, also one that it has claimed.
// Promise: P5
func TestReplicaThatDrainsLeavesRequests(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		jobs := []scheduler.Job{c.job("report", yearly, time.Second)}
		var leaves *replica
		leaves = c.replica("leaves", jobs, b.serveWith(func(r election.Result) {
			if r.Verdict == election.Granted {
				stop := leaves.stop
				stop()
				pass(time.Second)
			}
		}))
		leaves.run()
		c.at(time.Second)
		b.ask("q", "report")
		pass(100 * time.Millisecond)
		c.join("stays", jobs, b.serve)
		c.at(10 * time.Second)
		if runs := c.runs("report"); len(runs) != 1 || runs[0].Replica != "stays" {
			t.Errorf("%+v", runs)
		}
	})
}

func TestReplicaElsewhereLeavesRequests(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		jobs := []scheduler.Job{c.job("report", yearly, time.Second, func(j *scheduler.Job) { j.Where = scheduler.Labels{"zone": "a"} })}
		for _, zone := range []string{"b", "a", "c"} {
			c.join(zone, jobs, b.serve, func(cfg *scheduler.Config) { cfg.Labels = scheduler.Labels{"zone": zone} })
		}
		c.at(time.Second)
		b.ask("q", "report")
		c.at(time.Minute)
		if runs := c.runs("report"); len(runs) != 1 || runs[0].Replica != "a" {
			t.Errorf("%+v", runs)
		}
	})
}

// A reload during a request changes neither the run nor which instants are ticks.
func TestRequestGoesByTheJobThatItFound(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		var r *replica
		r = c.replica("r", []scheduler.Job{c.job("report", everyTen, time.Second)}, b.serveWith(func(got election.Result) {
			if got.Verdict == election.Granted {
				reload(t, []*replica{r}, c.job("report", yearly, time.Second))
			}
		}))
		r.run()
		c.at(25 * time.Second)
		b.ask("past", "report", func(q *scheduler.Request) { q.Tick = c.start.Add(10 * time.Second) })
		c.at(40 * time.Second)
		b.want("past", run.Running, "")
	})
}

// A run of a request is not recovered, also where it has the tick of another run: no replica takes it for abandoned.
// Promise: P6
func TestRunOfARequestIsNotRecovered(t *testing.T) {
	for name, interrupt := range map[string]func(r *replica){
		"drained":        func(r *replica) { r.stop() },
		"lost its lease": func(r *replica) { r.wire.silence(); time.AfterFunc(6500*time.Millisecond, r.wire.restore) },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				b := c.board()
				jobs := []scheduler.Job{c.job("j", "30 0 0 * * *", time.Hour, recovers(3), lease(9*time.Second))}
				r := c.join("holder", jobs, b.serve, drainTimeout(3*time.Second))
				c.at(time.Second)
				b.ask("q", "j", func(q *scheduler.Request) { q.Tick = c.start.Add(-24*time.Hour + 30*time.Second) })
				c.at(5 * time.Second)
				c.join("other", jobs)
				interrupt(r)
				c.at(29 * time.Second)
				if n := c.abandonments(); n > 0 && name == "drained" {
					t.Errorf("the run was called abandoned %d times", n)
				}
				want(t, "runs", len(c.runs("j")), 1)
			})
		})
	}
}

// The run of a request that misses its pool has that outcome, and no other replica runs it, since it has begun.
// Promise: P6
func TestRequestMissesItsPool(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		jobs := []scheduler.Job{c.job("j", yearly, time.Second, pool(1), startDeadline(10*time.Second))}
		slot := c.joinAll(2, jobs, b.serve)[0].enter(1, time.Hour)
		c.at(time.Second)
		b.ask("q", "j")
		c.at(10 * time.Second)
		want(t, "told so far", len(c.words("j")), 0)
		c.at(12 * time.Second)
		a := b.want("q", run.Running, "")
		want(t, "what became of it", verdict(c.words("j")[a.RunID]), "missed pool")
		want(t, "rows that are left", len(c.replicas[0].state("j").Running), 0)
		b.ask("drained", "j")
		c.at(15 * time.Second)
		for _, r := range c.replicas {
			r.leave()
		}
		a = b.want("drained", run.Running, "")
		want(t, "what became of it", verdict(c.words("j")[a.RunID]), "canceled drain")
		_ = slot.End(context.Background())
	})
}

// TestRequestOfAPausedJob is run: a pause is for ticks.
// Promise: P6
func TestRequestOfAPausedJob(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		c.joinAll(3, []scheduler.Job{c.job("j", everyTen, time.Second)}, b.serve)
		c.at(15 * time.Second)
		operator{c}.pause(0)
		b.ask("now", "j")
		c.at(18 * time.Second)
		b.ask("past", "j", func(q *scheduler.Request) { q.Tick = c.start.Add(10 * time.Second) })
		c.at(25 * time.Second)
		b.want("now", run.Running, "")
		b.want("past", run.Running, "")
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 3, "skipped paused": 1})
	})
}

// unreachable takes no answers before an instant, as a journal whose server is being replaced by another.
type unreachable struct {
	scheduler.Requests
	until time.Time
}

func (d unreachable) Answer(ctx context.Context, a scheduler.Answer) error {
	if time.Now().Before(d.until) {
		return errors.New("no server is there")
	}
	return d.Requests.Answer(ctx, a)
}

// A requester gets the outcome also if the journal takes no answers for some time, and is never told that a run was not started that is under way.
// Promise: P5
func TestAnswerOutlastsAFailover(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		away := time.Now().Add(31 * time.Second)
		c.joinAll(3, []scheduler.Job{c.job("report", yearly, time.Second), c.job("long", yearly, 20*time.Second)}, b.serve,
			func(cfg *scheduler.Config) { cfg.Requests = unreachable{cfg.Requests, away} })
		c.at(time.Second)
		b.ask("q", "report")
		b.ask("first", "long")
		c.at(10 * time.Second)
		b.ask("second", "long")
		c.at(30 * time.Second)
		if n := len(c.runs("report")); n != 1 {
			t.Fatalf("%d runs", n)
		}
		c.at(35 * time.Second)
		b.want("q", run.Running, "")
		b.want("first", run.Running, "")
		b.want("second", run.Skipped, "overlap")
	})
}

// TestUnansweredRequestHoldsUpNoDrain: a replica that drains gives up soon.
// Promise: P9
func TestUnansweredRequestHoldsUpNoDrain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.board()
		r := c.replica("r0", []scheduler.Job{c.job("report", yearly, time.Second)}, b.serve,
			func(cfg *scheduler.Config) { cfg.Requests = unreachable{cfg.Requests, time.Now().Add(time.Hour)} })
		r.run()
		c.at(time.Second)
		b.ask("q", "report")
		c.at(20 * time.Second)
		began := time.Now()
		r.leave()
		if took := time.Since(began); took > 3*time.Second || len(c.runs("report")) != 1 {
			t.Errorf("the drain took %v, after %d runs", took, len(c.runs("report")))
		}
	})
}
