package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

func drainTimeout(d time.Duration) func(*scheduler.Config) {
	return func(cfg *scheduler.Config) { cfg.DrainTimeout = d }
}

// TestDrainWaitsForRuns: a replica that drains claims nothing, waits for its runs, and stops those that are left
// so early that they are dead in time. Others take the ticks meanwhile.
// Promise: P9
func TestDrainWaitsForRuns(t *testing.T) {
	for _, tc := range []struct {
		name     string
		edits    func(c *cluster) []edit
		length   time.Duration // of the run, if it is not stopped
		timeout  time.Duration // of the drain, which begins 5s into the run
		ran      time.Duration
		outcomes map[string]int
	}{
		{"a run that ends", nil, 12 * time.Second, 25 * time.Second, 12 * time.Second, map[string]int{"ok": 1}},
		{"a run that obeys", nil, time.Hour, 25 * time.Second, 20 * time.Second, map[string]int{"canceled drain": 1}},
		{"a run that has to be killed", func(c *cluster) []edit { return []edit{c.stubborn(time.Hour)} },
			time.Hour, 25 * time.Second, 30 * time.Second, map[string]int{"canceled drain": 1}},
		{"a grace longer than the drain", func(c *cluster) []edit {
			return []edit{c.stubborn(time.Hour), func(j *scheduler.Job) { j.KillGrace = time.Minute }}
		}, time.Hour, 25 * time.Second, 30 * time.Second, map[string]int{"canceled drain": 1}},
		{"a grace that is running already", func(c *cluster) []edit {
			return []edit{c.stubborn(time.Hour), func(j *scheduler.Job) { j.Timeout, j.KillGrace = 3*time.Second, time.Minute }}
		}, time.Hour, 25 * time.Second, 30 * time.Second, map[string]int{"timeout": 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				var edits []edit
				if tc.edits != nil {
					edits = tc.edits(c)
				}
				long := c.job("long", "10 0 0 * * *", tc.length, edits...)
				leaver := c.join("leaver", []scheduler.Job{long}, drainTimeout(tc.timeout))
				c.at(11 * time.Second)
				c.join("other", []scheduler.Job{long, c.job("short", "* * * * * *", time.Millisecond)})
				c.at(15 * time.Second)
				leaver.stop()
				<-leaver.done
				ended := time.Since(c.start)
				run := c.runs("long")[0]
				want(t, "length of the run", run.to.Sub(run.from), tc.ran)
				want(t, "end of the drain", ended, 10*time.Second+tc.ran)
				want(t, "rows that are left", len(leaver.state("long").Running), 0)
				c.at(45*time.Second + 500*time.Millisecond)
				want(t, "ticks of the others", c.ticks("short"), seconds(12, 45, 1))
				want(t, "outcomes", c.outcomes("long"), tc.outcomes)
				if len(leaver.claims(c.start.Add(15*time.Second))) > 0 {
					t.Error("claimed after the drain had begun")
				}
			})
		})
	}
}

// TestAbort kills what a drain waits for.
func TestAbort(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("r", []scheduler.Job{c.job("j", "10 0 0 * * *", time.Hour, c.stubborn(time.Hour))})
		c.at(15 * time.Second)
		r.stop()
		c.at(20 * time.Second)
		r.Abort()
		r.Abort()
		<-r.done
		want(t, "end", time.Since(c.start), 20*time.Second)
		want(t, "outcomes", c.outcomes("j"), map[string]int{"canceled drain": 1})
		if cause := c.runs("j")[0].cause; !errors.Is(cause, run.ErrDrain) {
			t.Errorf("stopped with %v", cause)
		}
	})
}

// A tick that was claimed when the drain began is run by the draining replica, since no other replica can run it.
// Promise: P5
func TestDrainWithClaimUnderWay(t *testing.T) {
	for _, tc := range []struct {
		name   string
		faults []fault
	}{
		{"the reply is slow", []fault{{lateRequest, 500 * time.Millisecond}}},
		{"the reply is lost", []fault{{kind: cutAtReply}}},
		{"the reply is lost, and the next one", []fault{{kind: noReply}, {kind: cutAtReply}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second)}
				leaver := c.join("leaver", jobs)
				c.at(15 * time.Second)
				c.join("other", jobs).wire.plan(fault{lateRequest, 800 * time.Millisecond}, fault{lateRequest, 800 * time.Millisecond})
				c.at(19 * time.Second)
				leaver.wire.plan(tc.faults...)
				c.at(20*time.Second + 10*time.Millisecond)
				leaver.stop()
				<-leaver.done
				want(t, "faults", leaver.wire.count(), len(tc.faults))
				c.at(45 * time.Second)
				want(t, "ticks that ran", c.ticks("j"), []int{10, 20, 30, 40})
				want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 4})
			})
		})
	}
}

// A reply that names an orphan while the replica waits for its last run does not make it look again and again.
func TestDrainLeavesOrphansToOthers(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second, lease(10*time.Second))}
		holder := c.join("holder", jobs)
		c.at(10500 * time.Millisecond)
		leaver := c.join("leaver", append(jobs, c.job("long", "15 0 0 * * *", 20*time.Second)))
		holder.die()
		c.at(19 * time.Second)
		leaver.wire.plan(fault{lateRequest, 500 * time.Millisecond}, fault{lateRequest, 800 * time.Millisecond}) // the claim, and the look
		c.at(20*time.Second + 100*time.Millisecond)
		leaver.stop()
		<-leaver.done // time stands still where a goroutine does not rest
		want(t, "end of the drain", time.Since(c.start), 35*time.Second)
		c.join("other", jobs)
		c.at(45 * time.Second)
		want(t, "told", c.told("j")[10], []string{"abandoned"})
	})
}

// TestDrainWithoutServer ends soon, and leaves nothing behind but what the others can see.
func TestDrainWithoutServer(t *testing.T) {
	for name, how := range waysToBeAway {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				r := c.join("r", []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond)})
				c.at(10500 * time.Millisecond)
				how(&r.wire)
				c.at(20500 * time.Millisecond)
				r.stop()
				<-r.done
				if d := time.Since(c.start) - 20500*time.Millisecond; d > 6*time.Second {
					t.Errorf("the drain took %v", d)
				}
			})
		})
	}
}

// TestStopBeforeTheServerWasThere: Run returns when its context ends, whatever it waits for.
func TestStopBeforeTheServerWasThere(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.replica("r", []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond)})
		r.wire.silence()
		r.run()
		c.at(10500 * time.Millisecond)
		r.stop()
		<-r.done
		if r.err == nil {
			t.Error("Run did not tell that it has never begun")
		}
		if d := time.Since(c.start); d > 12*time.Second {
			t.Errorf("Run returned at %v", d)
		}
	})
}

// A drain waits for the silent server once for all its last requests, and not once for each.
func TestDrainWithSilentServer(t *testing.T) {
	for name, how := range waysToBeAway {
		for _, abort := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, abort %v", name, abort), func(t *testing.T) {
				inCluster(t, func(c *cluster) {
					var jobs []scheduler.Job
					for i := range 20 {
						jobs = append(jobs, c.job(fmt.Sprint("j", i), "5/10 * * * * *", time.Hour, lease(time.Minute)))
					}
					r := c.join("r", jobs, drainTimeout(2*time.Second))
					c.at(10500 * time.Millisecond)
					how(&r.wire)
					r.journalHangs()
					c.at(12 * time.Second)
					r.stop()
					limit := 2*time.Second + 4*time.Second // drain_timeout; the last record, and the release
					if abort {
						r.Abort()
						limit = 2 * time.Second // the release alone
					}
					<-r.done
					if d := time.Since(c.start) - 12*time.Second; d > limit+50*time.Millisecond {
						t.Errorf("the drain took %v", d)
					}
				})
			})
		}
	}
}

// TestGrantAfterTheAbort starts nothing, and is told of.
func TestGrantAfterTheAbort(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("r", []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second)})
		c.at(19 * time.Second)
		r.wire.plan(fault{lateRequest, 800 * time.Millisecond})
		c.at(20*time.Second + 10*time.Millisecond)
		r.stop()
		r.Abort()
		<-r.done
		want(t, "ticks that ran", c.ticks("j"), []int{10})
		want(t, "told", c.told("j")[20], []string{"canceled drain"})
		want(t, "rows that are left", len(r.state("j").Running), 0)
	})
}

// The tick of a claim that is under way when the drain gives up is either run here or given back, and not both.
func TestDrainGivesUpAClaimThatIsUnderWay(t *testing.T) {
	for try := range 10 { // the withdrawal and the claim race
		t.Run(fmt.Sprint(try), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", 8*time.Second, lease(30*time.Second), startDeadline(time.Hour))}
				other := c.join("other", jobs)
				leaver := c.join("leaver", jobs)
				c.at(19 * time.Second)
				other.wire.silence()
				leaver.wire.plan(fault{kind: noReply}, fault{kind: noReply}, fault{lateRequest, 950 * time.Millisecond},
					fault{lateRequest, 400 * time.Millisecond})
				c.at(20*time.Second + 50*time.Millisecond)
				leaver.stop()
				c.at(24 * time.Second)
				other.wire.restore()
				c.at(50 * time.Second)
				c.checkRuns("j", 1, 1)
			})
		})
	}
}

// TestDrainLeavesNoClaimBehind: one that is still on its way when a later one was answered may not take the tick.
func TestDrainLeavesNoClaimBehind(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "10/10 * * * * *", time.Millisecond, startDeadline(time.Minute), lease(5*time.Second))}
		leaver := c.join("leaver", jobs)
		c.at(15 * time.Second)
		manual := c.replica("manual", jobs).hold("j")
		c.at(19 * time.Second)
		leaver.wire.plan(fault{lateAndCut, 900 * time.Millisecond})
		c.at(20*time.Second + 10*time.Millisecond)
		leaver.stop()
		<-leaver.done
		want(t, "faults", leaver.wire.count(), 1)
		if err := manual.End(context.Background()); err != nil {
			t.Fatal(err)
		}
		c.at(25 * time.Second)
		c.join("other", jobs)
		c.at(35 * time.Second)
		want(t, "ticks that ran", c.ticks("j"), []int{10, 20, 30})
	})
}
