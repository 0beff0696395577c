package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/run"
)

// oracle is a claimer that grants nothing and answers as a test wants, by a clock of its own.
type oracle struct {
	mu          sync.Mutex
	offset      time.Duration // of its clock
	answer      func(now time.Time, c election.Claim) election.Result
	claims      []election.Claim
	calls       int // of Claim
	inspections int
}

func (o *oracle) Claim(_ context.Context, claims []election.Claim) []election.Result {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	o.claims = append(o.claims, claims...)
	results := make([]election.Result, len(claims))
	for i, c := range claims {
		results[i] = o.answer(time.Now().Add(o.offset), c)
	}
	return results
}

func (o *oracle) Withdraw(election.Claim)                               {}
func (o *oracle) AwaitWithdrawal(context.Context, election.Claim) error { return nil }

func (o *oracle) Inspect(_ context.Context, requests []election.InspectRequest) []election.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inspections += len(requests)
	now := time.Now().Add(o.offset)
	states := make([]election.State, len(requests))
	for i, q := range requests {
		states[i] = election.State{Now: now, Decided: now, Before: now}
		if through := q.SettleThrough; !through.IsZero() {
			states[i].Decided, states[i].Before = through, through.Add(-time.Hour)
		}
	}
	return states
}

func (o *oracle) DeleteOrphans(context.Context, string, ...string) error { return nil }

func (o *oracle) Now() (time.Time, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Now().Add(o.offset), true
}

// step moves the oracle's clock.
func (o *oracle) step(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.offset += d
}

func (o *oracle) counts() (claims, calls, inspections int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.claims), o.calls, o.inspections
}

// consult runs a scheduler on an oracle in a bubble until the test returns.
func consult(t *testing.T, o Claimer, jobs []Job, test func(t *testing.T, s *Scheduler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Jobs: jobs, Claimer: o})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		test(t, s)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if left := s.Leftovers(); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	})
}

func idle(name, schedule string) Job {
	return Job{Name: name, Schedule: []string{schedule}, Runner: Func(func(context.Context, *Run) error { return nil })}
}

func pass(d time.Duration) { <-time.After(d) }

// TestNoBusyLoop: whatever the server answers until a tick's deadline, it is not asked all the time.
func TestNoBusyLoop(t *testing.T) {
	past := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name   string
		result election.Result
	}{
		{"early until an instant that is past", election.Result{Verdict: election.Early, Until: past}},
		{"closed until an instant that is past", election.Result{Verdict: election.Closed, Until: past}},
		{"held until an instant that is past", election.Result{Verdict: election.Held, Until: past}},
		{"taken until an instant that is past", election.Result{Verdict: election.Taken, Until: past}},
		{"cannot tell", election.Result{Verdict: election.CannotTell, Err: election.ErrUnknown}},
		{"refused", election.Result{Verdict: election.CannotTell, Err: errors.New("no such thing")}},
		{"orphans", election.Result{Verdict: election.Taken, Orphans: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := &oracle{}
			o.answer = func(now time.Time, c election.Claim) election.Result {
				if now.After(c.Tick.Deadline) {
					return election.Result{Verdict: election.Settled, Outcome: c.Tick.IfLate}
				}
				return tc.result
			}
			consult(t, o, []Job{idle("j", "*/10 * * * * *")}, func(t *testing.T, s *Scheduler) {
				pass(100 * time.Second)
				claims, calls, inspections := o.counts()
				if limit := 100 * 21; claims > limit || calls > limit || inspections > limit { // 20 a second: every 50ms
					t.Errorf("%d claims in %d calls and %d inspections in 100s", claims, calls, inspections)
				}
			})
		})
	}
}

// TestManyJobsInFewBatches: ten thousand jobs that are due at once are claimed some hundred at a time, each once.
func TestManyJobsInFewBatches(t *testing.T) {
	o := &oracle{answer: func(time.Time, election.Claim) election.Result { return election.Result{Verdict: election.Taken} }}
	var jobs []Job
	for i := range 10_000 {
		jobs = append(jobs, idle(fmt.Sprint("j", i), "* * * * * *"))
	}
	consult(t, o, jobs, func(t *testing.T, s *Scheduler) {
		pass(10500 * time.Millisecond)
		if claims, calls, _ := o.counts(); claims != 100_000 || calls != claims/maxClaims {
			t.Errorf("%d claims in %d calls", claims, calls)
		}
	})
}

// TestFullReplicaAsksOnce: a full replica asks for each tick when it is due and when its deadline is over, and not whenever anything happens.
func TestFullReplicaAsksOnce(t *testing.T) {
	o := &oracle{}
	o.answer = func(now time.Time, c election.Claim) election.Result {
		if now.After(c.Tick.Deadline) {
			return election.Result{Verdict: election.Settled, Outcome: c.Tick.IfLate}
		}
		return election.Result{Verdict: election.Held}
	}
	var jobs []Job
	for i := range 2000 {
		j := idle(fmt.Sprint("j", i), "0 * * * * *")
		j.StartDeadline = 30 * time.Second
		jobs = append(jobs, j)
	}
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Jobs: jobs, Claimer: o, MaxRunning: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.places.taken = 1 // a run that does not end
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		pass(10*time.Minute + 45*time.Second)
		if claims, _, _ := o.counts(); claims != 2*10*2000 {
			t.Errorf("%d claims for 20,000 ticks", claims)
		}
		synctest.Wait() // the agenda belongs to the loop
		if n := s.agenda.Starved() + s.agenda.Asks().Len(); n != 0 {
			t.Errorf("%d ticks are remembered that are decided", n)
		}
		cancel()
		<-done
	})
}

// TestSleepInMicroseconds: the loop does not wake before the clock of the server, which is told in microseconds, has moved.
func TestSleepInMicroseconds(t *testing.T) {
	s, err := New(Config{Jobs: []Job{idle("j", "@daily")}, Claimer: &oracle{}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for due, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 0: 0, 1: time.Microsecond, time.Microsecond: time.Microsecond, time.Millisecond + 1: time.Millisecond + time.Microsecond,
		time.Hour: longestSleep,
	} {
		s.inspections.due.Set(&s.tasks["j"].inInspections, now.Add(due))
		if got := s.idleTime(now); got != want {
			t.Errorf("due in %v: a sleep of %v, not %v", due, got, want)
		}
	}
}

// TestBehindWithNothingOpen: a job that had too many open ticks, and has none any more, is looked at once, and goes on.
func TestBehindWithNothingOpen(t *testing.T) {
	o := &oracle{answer: func(time.Time, election.Claim) election.Result { return election.Result{Verdict: election.Taken} }}
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Jobs: []Job{idle("j", "*/10 * * * * *")}, Claimer: o})
		if err != nil {
			t.Fatal(err)
		}
		s.tasks["j"].Behind = run.ReasonLate
		s.inspections.due.Set(&s.tasks["j"].inInspections, time.Now().Add(5*time.Second))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		pass(time.Minute)
		cancel()
		<-done
		if o.inspections != 2 { // at the start, and this one
			t.Errorf("%d inspections", o.inspections)
		}
		if last := o.claims[len(o.claims)-1]; last.Abstain {
			t.Error("it does not go on")
		}
	})
}

// TestServerAwayIsProbed: while the server is away a backlog asks for itself a little at a time, and all of it soon after.
func TestServerAwayIsProbed(t *testing.T) {
	answer := election.Result{Verdict: election.CannotTell, Err: election.ErrUnknown}
	o := &oracle{answer: func(time.Time, election.Claim) election.Result { return answer }}
	var jobs []Job
	for i := range 500 {
		jobs = append(jobs, idle(fmt.Sprint("j", i), "0 * * * * *"))
	}
	consult(t, o, jobs, func(t *testing.T, s *Scheduler) {
		pass(10*time.Minute + 30*time.Second)
		if claims, calls, _ := o.counts(); claims > 200_000 || calls < 300 { // a million if all asked
			t.Errorf("%d claims in %d calls for 5,000 ticks in ten minutes", claims, calls)
		}
		o.mu.Lock()
		answer, o.claims = election.Result{Verdict: election.Taken}, nil
		o.mu.Unlock()
		pass(5 * time.Second)
		asked := map[string]bool{}
		o.mu.Lock()
		for _, c := range o.claims {
			asked[c.ID] = true
		}
		o.mu.Unlock()
		if len(asked) != 5000 {
			t.Errorf("%d of 5,000 ticks were asked for after that", len(asked))
		}
	})
}

// Claims that were due by the old clock are sent by the new one, and after a big step back the ticks are due again.
func TestClockStepsBack(t *testing.T) {
	for _, tc := range []struct {
		name  string
		step  time.Duration
		again bool
	}{
		{"by a little", time.Second, false}, {"by half a minute", 30 * time.Second, false}, {"by ten minutes", 10 * time.Minute, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer := election.Result{Verdict: election.Taken}
			o := &oracle{answer: func(time.Time, election.Claim) election.Result { return answer }}
			consult(t, o, []Job{idle("j", "*/10 * * * * *")}, func(t *testing.T, s *Scheduler) {
				pass(15*time.Minute + 5*time.Second)
				o.mu.Lock()
				answer = election.Result{Verdict: election.CannotTell, Err: election.ErrUnknown}
				o.mu.Unlock()
				pass(10 * time.Second) // the next tick can't be told
				before, _ := o.Now()
				o.step(-tc.step)
				o.mu.Lock()
				answer, o.claims = election.Result{Verdict: election.Taken}, nil
				o.mu.Unlock()
				pass(4 * time.Second)
				if claims, _, _ := o.counts(); claims != 1 {
					t.Errorf("the tick that is open was asked for %d times", claims)
				}
				pass(2 * time.Minute)
				o.mu.Lock()
				again := slices.ContainsFunc(o.claims[1:], func(c election.Claim) bool { return c.Tick.At.Before(before) })
				o.mu.Unlock()
				if again != tc.again {
					t.Errorf("ticks of before are due again: %v", again)
				}
				_, calls, _ := o.counts()
				pass(15 * time.Minute)
				if _, later, _ := o.counts(); later-calls > 100 {
					t.Errorf("%d claims in 15 minutes", later-calls)
				}
			})
		})
	}
}

// TestClockStepsForward: all ticks in between are due, oldest first, and no more than a job may have open.
func TestClockStepsForward(t *testing.T) {
	o := &oracle{answer: func(_ time.Time, c election.Claim) election.Result {
		return election.Result{Verdict: election.Settled, Outcome: c.Tick.IfLate}
	}}
	consult(t, o, []Job{idle("j", "*/10 * * * * *")}, func(t *testing.T, s *Scheduler) {
		pass(15 * time.Second)
		o.step(10 * time.Minute)
		pass(10 * time.Second)
		claims, _, _ := o.counts()
		if claims != 62 {
			t.Errorf("%d claims", claims)
		}
		for i := range claims - 1 {
			if !o.claims[i].Tick.At.Before(o.claims[i+1].Tick.At) {
				t.Fatalf("%v was claimed before %v", o.claims[i].Tick.At, o.claims[i+1].Tick.At)
			}
		}
	})
}

// A tick that is due in the moment of a reload is due by the old schedules.
// Promise: P5
func TestReloadOpensWhatIsDueBefore(t *testing.T) {
	jobs := func(schedule string) []Job {
		return []Job{{Name: "j", Schedule: []string{schedule}, Runner: Func(nil)}, {Name: "k", Schedule: []string{"@daily"}, Runner: Func(nil)}}
	}
	s, err := New(Config{Jobs: jobs("* * * * * *"), Claimer: &oracle{}})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Unix(1_000_000, 0)
	s.agenda.Enter(&s.tasks["j"].line, begin)
	tasks, err := new(Config).newTasks(jobs("* * * * * *"))
	if err != nil {
		t.Fatal(err)
	}
	s.handleReload(reload{tasks, make(chan struct{})}, begin.Add(time.Second))
	if open := s.tasks["j"].Open; len(open) != 1 || !open[0].At.Equal(begin.Add(time.Second)) {
		t.Errorf("open: %+v", open)
	}
	if at, ok := s.agenda.Next(); !ok || !at.Equal(begin.Add(2*time.Second)) {
		t.Errorf("next: %v", at)
	}
}

// Ticks that came due before the clock was set back are open afterwards.
// Promise: P5
func TestClockSetBackWhileTicksAreOpened(t *testing.T) {
	var jobs []Job
	for i := range 1001 { // more than are opened at once
		jobs = append(jobs, idle(fmt.Sprint("j", i), "0 0 3 * * *"))
	}
	s, err := New(Config{Jobs: jobs, Claimer: &oracle{}})
	if err != nil {
		t.Fatal(err)
	}
	due := time.Date(2000, 1, 1, 3, 0, 0, 0, time.UTC)
	for _, j := range s.tasks {
		s.agenda.Enter(&j.line, due.Add(-time.Hour))
	}
	late := due.Add(10 * time.Minute)
	s.noticeStep(late)
	if s.agenda.Collect(late); !s.agenda.More() {
		t.Fatal("all are open")
	}
	s.noticeStep(late.Add(-5 * time.Minute))
	for _, j := range s.tasks {
		if len(j.Open) != 1 {
			t.Fatalf("%s has %d open ticks", j.Name, len(j.Open))
		}
	}
}

// BenchmarkEndOfARun is the end of a run while some of many other jobs have orphans that wait for a recovery.
func BenchmarkEndOfARun(b *testing.B) {
	jobs := make([]Job, 10_000)
	for i := range jobs {
		jobs[i] = idle(fmt.Sprint("job-", i), "0 0 1 1 *")
		jobs[i].Recover = Recover{Max: 1}
	}
	s, err := New(Config{Jobs: jobs, Claimer: &oracle{}})
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	for i := range 500 {
		s.recoveries.enqueueOrphans(s.tasks[fmt.Sprint("job-", i)], election.State{Now: now, Orphans: []election.Run{{ID: fmt.Sprint("run-", i), Tick: now, Attempt: 1, Abandoned: true}}}, now)
	}
	last := s.tasks["job-9999"]
	for b.Loop() {
		s.recoveries.roomFor(last, last.Rules, nil, now)
	}
}
