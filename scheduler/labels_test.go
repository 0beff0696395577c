package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler"
)

func where(labels scheduler.Labels) edit { return func(j *scheduler.Job) { j.Where = labels } }

func labelled(labels scheduler.Labels) func(*scheduler.Config) {
	return func(cfg *scheduler.Config) { cfg.Labels = labels }
}

// alone lets a replica know of no other with the labels of a job.
func alone(cfg *scheduler.Config) {
	name, labels := cfg.Replica, cfg.Labels
	cfg.Peers = func(where scheduler.Labels) (string, []string) {
		if labels.Include(where) {
			return name, []string{name}
		}
		return name, nil
	}
}

// A replica without the labels of a job never runs it, claims hardly any tick that another replica has published to have won (an event may come before
// the tick is open), and records the ticks that no replica ran.
// Promise: P6
func TestLabelsDecideWhoRuns(t *testing.T) {
	replicas := map[string]scheduler.Labels{"a": {"zone": "a", "disk": "ssd"}, "b": {"zone": "b", "disk": "ssd"}, "c": nil}
	for _, tc := range []struct {
		name    string
		where   scheduler.Labels
		fit     []string
		outcome string // of each tick
	}{
		{"one has it", scheduler.Labels{"zone": "a"}, []string{"a"}, "ok"},
		{"two have it", scheduler.Labels{"disk": "ssd"}, []string{"a", "b"}, "ok"},
		{"one has both", scheduler.Labels{"disk": "ssd", "zone": "b"}, []string{"b"}, "ok"},
		{"none has both", scheduler.Labels{"disk": "hdd", "zone": "b"}, nil, "missed labels"},
		{"none has one of that name", scheduler.Labels{"gpu": "yes"}, nil, "missed labels"},
		{"none is asked for", scheduler.Labels{}, []string{"a", "b", "c"}, "ok"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				jobs := []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, where(tc.where))}
				for _, name := range []string{"a", "b", "c"} {
					c.join(name, jobs, labelled(replicas[name]), alone)
				}
				c.at(30*time.Second + 900*time.Millisecond)
				for _, r := range c.runs("j") {
					if !slices.Contains(tc.fit, r.Replica) {
						t.Errorf("%s ran tick %d", r.Replica, c.second(r.Tick))
					}
				}
				told := c.told("j")
				for tick := 1; tick <= 29; tick++ {
					want(t, fmt.Sprint("told of tick ", tick), told[tick], []string{tc.outcome})
				}
				c.checkRuns("j", 1, 1)
				const few = 10
				for _, r := range c.replicas {
					if claims := r.claims(c.start); len(tc.fit) > 0 && !slices.Contains(tc.fit, r.name) && len(claims) > few {
						t.Errorf("%s, which may not run it, has made %d claims", r.name, len(claims))
					}
				}
			})
		})
	}
}

// While the replicas with the labels are away a tick is open until its deadline, and is theirs if they come in time. It is settled once, after that, by
// claims that could not win.
// Promise: P5
func TestReplicaElsewhereAsksAtTheDeadline(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", time.Millisecond, startDeadline(25*time.Second), where(scheduler.Labels{"zone": "a"}))}
		foreign := c.join("foreign", jobs)
		c.at(50 * time.Second)
		fit := c.join("fit", jobs, labelled(scheduler.Labels{"zone": "a"}))
		c.at(64 * time.Second)
		fit.die()
		c.at(110 * time.Second)
		want(t, "ticks that ran", c.ticks("j"), []int{30, 40, 50, 60})
		want(t, "told", c.told("j"), map[int][]string{10: {"missed down"}, 20: {"missed down"}, 30: {"ok"}, 40: {"ok"}, 50: {"ok"}, 60: {"ok"},
			70: {"missed down"}, 80: {"missed down"}})
		var asked []int
		for _, claim := range foreign.claims(c.start) {
			asked = append(asked, c.second(claim.Tick.At))
			if !claim.Abstain || !claim.when.After(claim.Tick.Deadline) {
				t.Errorf("a claim for tick %d, %v after it, abstains: %v", c.second(claim.Tick.At), claim.when.Sub(claim.Tick.At), claim.Abstain)
			}
		}
		want(t, "asked for", asked, []int{10, 20, 70, 80})
		c.checkRuns("j", 1, 1)
	})
}

// A replica that may run a job knows why it did not, and records that first.
// Promise: P6
func TestReplicaElsewhereLeavesTheReasonToOthers(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("long", "5 0 0 * * *", time.Minute), c.job("j", "*/10 * * * * *", time.Millisecond, startDeadline(2*time.Second))}
		for i := range jobs {
			jobs[i].Where = scheduler.Labels{"zone": "a"}
		}
		c.join("foreign", jobs)
		c.join("fit", jobs, labelled(scheduler.Labels{"zone": "a"}), func(cfg *scheduler.Config) { cfg.MaxRunning = 1 })
		c.at(45 * time.Second)
		want(t, "told", c.told("j"), map[int][]string{10: {"missed capacity"}, 20: {"missed capacity"}, 30: {"missed capacity"}, 40: {"missed capacity"}})
	})
}

// Of ticks that no replica can run the older ones are settled together, too, each with its outcome.
// Promise: P9
func TestReplicaElsewhereKeepsNoMoreThanOthers(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.quiet = true
		r := c.join("r", []scheduler.Job{c.job("j", "* * * * * *", time.Millisecond, startDeadline(2*time.Hour), where(scheduler.Labels{"zone": "a"}))})
		c.at(1100*time.Second + 500*time.Millisecond)
		want(t, "newest that is decided", c.second(r.state("j").Decided), 100)
		told := c.told("j")
		for tick := 1; tick <= 100; tick++ {
			want(t, fmt.Sprint("told of tick ", tick), told[tick], []string{"missed down"})
		}
	})
}

// A replica that can't run a job does not rank before those that can.
func TestRanksAmongThoseWithTheLabels(t *testing.T) {
	inCluster(t, func(c *cluster) {
		zone := scheduler.Labels{"zone": "a"}
		jobs := []scheduler.Job{c.job("here", "* * * * * *", time.Millisecond, where(zone)), c.job("anywhere", "* * * * * *", time.Millisecond)}
		var asked atomic.Bool
		peers := func(where scheduler.Labels) (self string, all []string) {
			asked.Store(true)
			if where["zone"] == "a" {
				return "fit", []string{"fit"}
			}
			return "fit", []string{"fit", "b", "c", "d", "e", "f", "g"}
		}
		c.join("fit", jobs, labelled(zone), func(cfg *scheduler.Config) { cfg.Peers = peers })
		c.at(20*time.Second + 500*time.Millisecond)
		waited := false
		for _, name := range []string{"here", "anywhere"} {
			for _, r := range c.runs(name) {
				late := r.from.Sub(r.Tick) >= 5*time.Millisecond
				waited = waited || late
				if late && name == "here" {
					t.Errorf("tick %d began %v late", c.second(r.Tick), r.from.Sub(r.Tick))
				}
			}
		}
		if !waited || !asked.Load() {
			t.Error("it went first for all ticks of both jobs") // then this has shown nothing
		}
	})
}

// RunNow needs the labels of the job, unless it runs without a lock.
func TestRunNowNeedsTheLabels(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "@yearly", time.Millisecond, where(scheduler.Labels{"zone": "a"}))}
		for _, tc := range []struct {
			name   string
			labels scheduler.Labels
			lock   bool
			err    error
		}{
			{"fit", scheduler.Labels{"zone": "a"}, true, nil},
			{"foreign", scheduler.Labels{"zone": "b"}, true, scheduler.ErrElsewhere},
			{"foreign, without a lock", nil, false, nil},
		} {
			r := c.replica(tc.name, jobs, labelled(tc.labels))
			if _, err := r.RunNow(context.Background(), "j", tc.lock); !errors.Is(err, tc.err) {
				t.Errorf("%s: %v, want %v", tc.name, err, tc.err)
			}
		}
		want(t, "runs", len(c.runs("j")), 2)
	})
}

func on(replica string) edit { return where(scheduler.Labels{scheduler.ReplicaLabel: replica}) }

// everywhere has an instance of a job for each replica, as one with per_tick = "all".
func (c *cluster) everywhere(schedule string, replicas []string, edits ...edit) (jobs []scheduler.Job) {
	for _, name := range replicas {
		jobs = append(jobs, c.job("j@"+name, schedule, time.Millisecond, append(edits, on(name))...))
	}
	return jobs
}

// Each replica runs each tick of its own instance once, without a delay for others, and no tick of another instance.
// Promise: P1
func TestInstanceRunsOnItsReplica(t *testing.T) {
	inCluster(t, func(c *cluster) {
		names := []string{"a", "b.example", "c"}
		jobs := c.everywhere("* * * * * *", names)
		for _, name := range names {
			c.join(name, jobs, c.ranked)
		}
		c.at(20*time.Second + 900*time.Millisecond)
		for _, name := range names {
			for _, r := range c.runs("j@" + name) {
				if r.Replica != name || r.from.Sub(r.Tick) > time.Millisecond {
					t.Errorf("%s ran tick %d of %s, %v late", r.Replica, c.second(r.Tick), name, r.from.Sub(r.Tick))
				}
			}
			if ran := c.ticks("j@" + name); len(ran) != 20 {
				t.Errorf("%s ran %v", name, ran)
			}
			c.checkRuns("j@"+name, 1, 1)
		}
	})
}

// A tick of a replica that is dead past the deadline is missed once, because it was down, and runs nowhere else. One that is back in time runs it, once.
// Promise: P1, P6
func TestTickOfADeadReplicaIsMissed(t *testing.T) {
	inCluster(t, func(c *cluster) {
		names := []string{"a", "b"}
		jobs := c.everywhere("*/10 * * * * *", names, startDeadline(8*time.Second))
		b := c.join("b", jobs, alone)
		c.join("a", jobs, alone)
		c.at(15 * time.Second)
		b.die()
		c.at(45 * time.Second)
		c.join("b", jobs, alone)
		c.at(65 * time.Second)
		want(t, "ticks of the living", c.ticks("j@a"), []int{10, 20, 30, 40, 50, 60})
		want(t, "ticks of the dead", c.ticks("j@b"), []int{10, 40, 50, 60})
		want(t, "told", c.told("j@b"), map[int][]string{10: {"ok"}, 20: {"missed down"}, 30: {"missed down"}, 40: {"ok"}, 50: {"ok"}, 60: {"ok"}})
		for _, r := range c.runs("j@b") {
			if r.Replica != "b" {
				t.Errorf("tick %d ran on %s", c.second(r.Tick), r.Replica)
			}
		}
		c.checkRecordedOnce("j@b")
		c.checkRuns("j@b", 1, 1)
	})
}

// checkPlaces holds that each replica ran its own instances alone.
func (c *cluster) checkPlaces(jobs []scheduler.Job) {
	c.t.Helper()
	for i := range jobs {
		for _, r := range c.runs(jobs[i].Name) {
			if jobs[i].Name != "j@"+r.Replica {
				c.t.Errorf("%s ran tick %d of %s", r.Replica, c.second(r.Tick), jobs[i].Name)
			}
		}
	}
}

// A replica that comes back catches up the ticks of its own instance. The other replica runs its own ticks in time. It neither runs the ticks of the absent
// replica, nor decides a tick that is caught up.
// Promise: P1, P5, P6
func TestInstanceCatchesUpItsOwnTicks(t *testing.T) {
	for _, tc := range catchUpCases {
		if tc.length > time.Second {
			continue // instances have short runs
		}
		for how, goes := range map[string]func(*replica){"dies": (*replica).die, "leaves": (*replica).leave} {
			t.Run(tc.name+" "+how, func(t *testing.T) {
				inCluster(t, func(c *cluster) {
					jobs := c.everywhere("* * * * *", []string{"a", "b"}, startDeadline(10*time.Second), catchUp(tc.policy, tc.window))
					c.join("a", jobs, alone)
					b := c.join("b", jobs, alone)
					c.at(170 * time.Second)
					goes(b)
					c.at(390 * time.Second)
					c.join("b", jobs, alone)
					c.at(539 * time.Second)
					c.checkCatchUp("j@b", tc.ran, tc.caught, tc.outcomes, "down")
					c.checkCatchUp("j@a", seconds(60, 480, 60), nil, map[string]int{"ok": 8}, "")
					c.checkPlaces(jobs)
				})
			})
		}
	}
}

// An instance runs once after each tick that the job before it ended ok, on its own replica. Ticks that end while its replica is away for longer than the
// deadline are missed.
// Promise: P1, P6
func TestInstanceRunsAfterOthers(t *testing.T) {
	inCluster(t, func(c *cluster) {
		instances := c.everywhere("", []string{"a", "b"}, after("first"), startDeadline(8*time.Second))
		jobs := append(instances, c.job("first", everyTen, time.Second, c.failsAt(20)))
		c.join("a", jobs, alone)
		b := c.join("b", jobs, alone)
		c.at(35 * time.Second)
		b.die()
		c.at(65 * time.Second)
		c.join("b", jobs, alone)
		c.at(89 * time.Second)
		want(t, "ticks of a", c.ticks("j@a"), []int{10, 30, 40, 50, 60, 70, 80})
		want(t, "told of b", c.told("j@b"), map[int][]string{10: {"ok"}, 30: {"ok"}, 40: {"missed down"}, 50: {"missed down"}, 60: {"ok"}, 70: {"ok"}, 80: {"ok"}})
		for _, j := range instances {
			c.checkRuns(j.Name, 1, 1)
			c.checkRecordedOnce(j.Name)
		}
		c.checkPlaces(instances)
	})
}

// A replica that joins does not run ticks from before it, also while their deadline has not passed.
// Promise: P1
func TestJoinerRunsLaterTicksAlone(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.join("a", c.everywhere("*/10 * * * * *", []string{"a"}, startDeadline(9*time.Second)))
		c.at(12 * time.Second)
		both := c.everywhere("*/10 * * * * *", []string{"a", "b"}, startDeadline(9*time.Second))
		c.join("b", both)
		if err := a.Reload(context.Background(), both); err != nil {
			t.Fatal(err)
		}
		c.at(35 * time.Second)
		want(t, "ticks of the first", c.ticks("j@a"), []int{10, 20, 30})
		want(t, "ticks of the joiner", c.ticks("j@b"), []int{20, 30})
		want(t, "told of the joiner", c.told("j@b"), map[int][]string{20: {"ok"}, 30: {"ok"}})
	})
}

// Names of jobs have at most one replica behind them.
func TestNameOfAnInstance(t *testing.T) {
	inCluster(t, func(c *cluster) {
		for name, fine := range map[string]bool{"j@r1": true, "j@db-1.example.org": true, "j@": false, "@r1": false, "j@r1@r2": false, "j@r 1": false, "j.x@r1": false} {
			_, err := scheduler.New(scheduler.Config{Jobs: []scheduler.Job{c.job(name, "@daily", time.Millisecond)}})
			if (err == nil) != fine {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
