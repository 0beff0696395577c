package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// failing ends its first tries, and lets later ones be ok. A try that hangs waits until it is stopped.
func (c *cluster) failing(tries int, length time.Duration, hangs bool) edit {
	return func(j *scheduler.Job) {
		j.Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
			seen := c.began(run)
			defer func() { c.ended(seen, context.Cause(ctx)) }()
			if hangs && run.Attempt <= tries {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			select {
			case <-time.After(length):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if run.Attempt <= tries {
				return fmt.Errorf("try %d", run.Attempt)
			}
			return nil
		})
	}
}

func retry(most int, delay, longest time.Duration) edit {
	return func(j *scheduler.Job) { j.Retry = scheduler.Retry{Max: most, Delay: delay, MaxDelay: longest} }
}

// verdictsOf returns the records of a tick: by the suffixes of the ids, which only tries that were followed by another have.
func (c *cluster) verdictsOf(job string, second int) []string {
	var all []string
	for id, r := range c.words(job) {
		if c.second(r.Tick) == second {
			_, suffix, _ := strings.Cut(id, ".")
			all = append(all, strings.TrimSpace(fmt.Sprint(suffix, " attempt ", r.Attempt, " ", verdict(r))))
		}
	}
	slices.Sort(all)
	return all
}

// TestRetry numbers the tries of a run one after the other, and records each.
// Promise: P6
func TestRetry(t *testing.T) {
	for _, tc := range []struct {
		name     string
		edits    func(c *cluster) []edit
		attempts []int // of the tries
		told     []string
	}{
		{"none is configured", func(c *cluster) []edit { return []edit{c.failing(9, time.Second, false)} },
			[]int{1}, []string{"attempt 1 failed try 1"}},
		{"the second try is ok", func(c *cluster) []edit {
			return []edit{c.failing(1, time.Second, false), retry(3, time.Second, time.Second)}
		},
			[]int{1, 2}, []string{"1 attempt 1 failed try 1", "attempt 2 ok"}},
		{"all fail", func(c *cluster) []edit {
			return []edit{c.failing(9, time.Second, false), retry(2, time.Second, time.Second)}
		},
			[]int{1, 2, 3}, []string{"1 attempt 1 failed try 1", "2 attempt 2 failed try 2", "attempt 3 failed try 3"}},
		{"each has its own timeout", func(c *cluster) []edit {
			return []edit{c.failing(2, 4*time.Second, true), retry(2, time.Second, time.Second), func(j *scheduler.Job) { j.Timeout = 5 * time.Second }}
		}, []int{1, 2, 3}, []string{"1 attempt 1 timeout", "2 attempt 2 timeout", "attempt 3 ok"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.joinAll(2, []scheduler.Job{c.job("j", "30 * * * * *", 0, append(tc.edits(c), lease(3*time.Second))...)})
				c.at(55 * time.Second)
				var attempts []int
				runs := c.runs("j")
				for _, r := range runs {
					attempts = append(attempts, r.Attempt)
					if r.ID != runs[0].ID || r.Token != runs[0].Token || r.Slot != runs[0].Slot {
						t.Errorf("run %s with token %d in slot %d, after %s with %d in %d", r.ID, r.Token, r.Slot, runs[0].ID, runs[0].Token, runs[0].Slot)
					}
				}
				want(t, "attempts", attempts, tc.attempts)
				want(t, "told", c.verdictsOf("j", 30), tc.told)
			})
		})
	}
}

// A run that is tried again holds its slot meanwhile.
func TestRetryKeepsItsSlot(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.joinAll(3, []scheduler.Job{c.job("j", "*/10 * * * * *", 0, c.failing(1, time.Second, false), retry(1, 22*time.Second, 22*time.Second), lease(2*time.Second))})
		c.at(21 * time.Second)
		want(t, "ticks that ran", c.ticks("j"), []int{10})
		want(t, "told of the next", c.told("j")[20], []string{"skipped overlap"})
		c.at(35 * time.Second)
		want(t, "ticks that ran", c.ticks("j")[:2], []int{10, 10})
		want(t, "told", c.verdictsOf("j", 10), []string{"1 attempt 1 failed try 1", "attempt 2 ok"})
	})
}

// A stop that interrupts the wait for a retry leaves the outcome of the try before, unless it is the loss of the lease.
// Promise: P9
func TestRetryIsInterrupted(t *testing.T) {
	for _, tc := range []struct {
		name      string
		interrupt func(r *replica)
		outcome   run.Outcome
	}{
		{"by a drain", func(r *replica) { r.stop() }, run.Failed},
		{"by the loss of the lease", func(r *replica) { r.wire.silence() }, run.Lost},
		{"by an abort", func(r *replica) { r.Abort() }, run.Failed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				r := c.join("a", []scheduler.Job{c.job("j", "30 * * * * *", 0, c.failing(9, time.Second, false), retry(5, 8*time.Second, 8*time.Second), lease(3*time.Second))})
				c.at(31700 * time.Millisecond) // between two renewals, so that the lease has a known end
				tc.interrupt(r)
				c.at(34700 * time.Millisecond)
				if len(c.runs("j")) != 1 || c.words("j")[c.runs("j")[0].ID].Outcome != tc.outcome {
					t.Errorf("%d tries, told %v", len(c.runs("j")), c.verdictsOf("j", 30))
				}
				c.at(50 * time.Second)
				want(t, "tries", len(c.runs("j")), 1)
				want(t, "running", r.Running(), 0)
			})
		})
	}
}

// A replica that dies between two tries, or in one, leaves an orphan as any other does, of the attempt that it died in.
// Promise: P6
func TestReplicaDiesBetweenTries(t *testing.T) {
	for at, told := range map[time.Duration][]string{
		32 * time.Second: {"attempt 1 abandoned"},
		45 * time.Second: {"1 attempt 1 failed try 1", "attempt 2 abandoned"},
	} {
		t.Run(fmt.Sprint("at ", at), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "30 * * * * *", 0, c.failing(1, time.Second, false), retry(1, 10*time.Second, 10*time.Second), lease(3*time.Second))}
				jobs[0].Runner = scheduler.Func(func(ctx context.Context, run *scheduler.Run) error {
					if run.Attempt == 1 {
						return errors.New("try 1")
					}
					<-ctx.Done()
					return context.Cause(ctx)
				})
				r := c.join("a", jobs)
				c.at(at)
				c.join("b", jobs)
				r.die()
				c.at(at + 8*time.Second)
				want(t, "told", c.verdictsOf("j", 30), told)
			})
		})
	}
}

func TestRetryPauses(t *testing.T) {
	r := scheduler.Retry{Max: 100, Delay: 3 * time.Second, MaxDelay: 20 * time.Second}
	for number, longest := range map[int]time.Duration{1: 3 * time.Second, 2: 6 * time.Second, 3: 12 * time.Second, 4: 20 * time.Second, 100: 20 * time.Second} {
		least, most := time.Hour, time.Duration(0)
		for range 1000 {
			p := scheduler.RetryPause(r, number)
			least, most = min(least, p), max(most, p)
		}
		if least < longest/2 || most > longest || most-least < longest/3 {
			t.Errorf("before try %d: %v to %v, want %v to %v", number+1, least, most, longest/2, longest)
		}
	}
}

func TestRetryIsFilledIn(t *testing.T) {
	for _, r := range []scheduler.Retry{{Max: 1}, {Max: 1, Delay: 10 * time.Minute}, {Max: 1, MaxDelay: 2 * time.Second}} {
		job := scheduler.Job{Name: "j", Schedule: []string{"@daily"}, Runner: scheduler.Func(nil), Retry: r}
		if _, err := scheduler.New(scheduler.Config{Jobs: []scheduler.Job{job}}); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestRetryThatCannotBe(t *testing.T) {
	for _, r := range []scheduler.Retry{{Max: -1}, {Max: 101}, {Max: 1, Delay: -1}, {Max: 1, Delay: 2, MaxDelay: 1}} {
		_, err := scheduler.New(scheduler.Config{Jobs: []scheduler.Job{{Name: "j", Schedule: []string{"@daily"}, Runner: scheduler.Func(nil), Retry: r}}})
		if err == nil || !strings.Contains(err.Error(), "Retry") || errors.Is(err, scheduler.ErrNoJob) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// checkAttempts demands that no two tries of a tick have the same number, neither in the runs (P1) nor in the records (P6).
func (c *cluster) checkAttempts(job string, perTick int) {
	c.t.Helper()
	began, told := map[string][]string{}, map[string][]string{}
	for _, r := range c.runs(job) {
		if r.Trigger != "manual" {
			k := fmt.Sprintf("attempt %d of %s %d", r.Attempt, job, c.second(r.Tick))
			began[k] = append(began[k], r.Replica+" "+r.ID)
		}
	}
	for id, r := range c.words(job) {
		if r.Trigger != "manual" && r.Attempt > 0 {
			k := fmt.Sprintf("attempt %d of %s %d", r.Attempt, job, c.second(r.Tick))
			told[k] = append(told[k], r.Replica+" "+id+" "+verdict(r))
		}
	}
	for k, all := range began {
		if len(all) > perTick {
			c.t.Errorf("P1: %s began %d times: %q", k, len(all), all)
		}
	}
	for k, all := range told {
		if len(all) > perTick {
			c.t.Errorf("P6: %s is told of %d times: %q", k, len(all), all)
		}
	}
}

// attempts are the numbers of all tries that began, with the replica of each.
func (c *cluster) attempts(job string) []string {
	var all []string
	for _, r := range c.runs(job) {
		all = append(all, fmt.Sprint(r.Attempt, " on ", r.Replica))
	}
	return all
}

// loseReplies lets requests arrive, and no replies.
func loseReplies(w *wire) { w.plan(slices.Repeat([]fault{{kind: noReply}}, 1000)...) }

// A holder that is cut off when its first try has failed begins no other one before the cluster has acknowledged that number, so a recovery on another
// replica uses no number twice.
// Promise: P6
func TestTryWaitsForItsNumber(t *testing.T) {
	const length = 9 * time.Second // of the lease, which has been renewed once before the cut
	for _, tc := range []struct {
		name     string
		cut      func(w *wire)
		restored time.Duration
		attempts []string
		told     []string
	}{
		{"no request arrives", (*wire).silence, time.Hour, []string{"1 on holder", "2 on other", "3 on other"},
			[]string{"1 schedule lost", "2 recovery failed try 2", "3 recovery ok"}},
		{"it is refused", (*wire).refuse, time.Hour, []string{"1 on holder", "2 on other", "3 on other"},
			[]string{"1 schedule lost", "2 recovery failed try 2", "3 recovery ok"}},
		{"no reply arrives, so the number is used up", loseReplies, time.Hour, []string{"1 on holder", "3 on other"},
			[]string{"1 schedule lost", "3 recovery ok"}},
		{"for a while", (*wire).silence, 39 * time.Second, []string{"1 on holder", "2 on holder", "3 on holder"},
			[]string{"1 schedule failed try 1", "2 schedule failed try 2", "3 schedule ok"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "30 0 0 * * *", 0, c.failing(2, 4*time.Second, false), retry(3, time.Second, time.Second), recovers(3), lease(length))}
				holder := c.join("holder", jobs)
				c.at(33500 * time.Millisecond)
				c.join("other", jobs)
				tc.cut(&holder.wire)
				if tc.restored < time.Hour {
					c.at(tc.restored - time.Millisecond)
					want(t, "tries before the number is acknowledged", c.attempts("j"), []string{"1 on holder"})
					holder.wire.restore()
				}
				c.at(2 * time.Minute)
				want(t, "tries", c.attempts("j"), tc.attempts)
				want(t, "told", c.attemptsOf("j", 30), tc.told)
				c.checkAttempts("j", 1)
			})
		})
	}
}

// A stop of the run interrupts its wait for an attempt number at once.
func TestWaitForANumberIsInterrupted(t *testing.T) {
	for _, tc := range []struct {
		name      string
		interrupt func(t *testing.T, holder, other *replica) // at 31s, in the wait
		by        time.Duration                              // when the run is over on the holder
		told      string
	}{
		{"by a drain", func(_ *testing.T, holder, _ *replica) { holder.stop() }, 33100 * time.Millisecond, "1 schedule failed try 1"},
		{"by an abort", func(_ *testing.T, holder, _ *replica) { holder.Abort() }, 33100 * time.Millisecond, "1 schedule failed try 1"},
		{"by a stop that the acknowledgement brings", func(_ *testing.T, holder, other *replica) {
			other.cancel("j", "")
			holder.wire.restore()
		}, 33 * time.Second, "1 schedule canceled user"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "30 0 0 * * *", 0, c.failing(9, 0, false), retry(3, 500*time.Millisecond, 500*time.Millisecond), lease(30*time.Second))}
				holder := c.join("holder", jobs)
				c.at(30200 * time.Millisecond)
				other := c.join("other", jobs)
				holder.wire.silence()
				c.at(31 * time.Second)
				want(t, "running in the wait", holder.Running(), 1)
				tc.interrupt(t, holder, other)
				c.at(tc.by)
				want(t, "running", holder.Running(), 0)
				want(t, "tries", c.attempts("j"), []string{"1 on holder"})
				c.at(2 * time.Minute)
				want(t, "tries", c.attempts("j"), []string{"1 on holder"})
				want(t, "told", c.attemptsOf("j", 30), []string{tc.told})
			})
		})
	}
}
