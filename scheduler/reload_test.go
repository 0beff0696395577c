package scheduler_test

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler"
)

// reload has replicas take new jobs, in the midst of whatever they do.
func reload(t *testing.T, replicas []*replica, jobs ...scheduler.Job) {
	t.Helper()
	for _, r := range replicas {
		if err := r.Reload(context.Background(), jobs); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReload(t *testing.T) {
	for _, tc := range []struct {
		name     string
		before   func(c *cluster) []scheduler.Job
		after    func(c *cluster) []scheduler.Job
		at       time.Duration
		ticks    []int
		outcomes map[string]int
	}{
		{"an added job has ticks from then on",
			func(*cluster) []scheduler.Job { return nil },
			func(c *cluster) []scheduler.Job {
				return []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second)}
			},
			25 * time.Second, []int{30, 40, 50, 60}, map[string]int{"ok": 4}},
		{"a removed job has none any more, and its run goes on",
			func(c *cluster) []scheduler.Job {
				return []scheduler.Job{c.job("j", "*/10 * * * * *", 8*time.Second)}
			},
			func(*cluster) []scheduler.Job { return nil },
			25 * time.Second, []int{10, 20}, map[string]int{"ok": 2}},
		{"a job that keeps its schedule keeps its place in it",
			func(c *cluster) []scheduler.Job {
				return []scheduler.Job{c.job("j", "*/10 * * * * *", 8*time.Second)}
			},
			func(c *cluster) []scheduler.Job {
				return []scheduler.Job{c.job("j", "*/10 * * * * *", 12*time.Second)} // and so skips every second tick
			},
			25 * time.Second, []int{10, 20, 30, 50}, map[string]int{"ok": 4, "skipped overlap": 2}},
		{"an edited schedule never fires in retrospect",
			func(c *cluster) []scheduler.Job { return []scheduler.Job{c.job("j", "30 * * * * *", time.Second)} },
			func(c *cluster) []scheduler.Job {
				return []scheduler.Job{c.job("j", "*/5 * * * * *", time.Second)}
			},
			38 * time.Second, []int{30, 40, 45, 50, 55, 60}, map[string]int{"ok": 6}},
		{"an edited schedule leaves a run alone",
			func(c *cluster) []scheduler.Job { return []scheduler.Job{c.job("j", "30 * * * * *", 15*time.Second)} },
			func(c *cluster) []scheduler.Job {
				return []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second)}
			},
			38 * time.Second, []int{30, 50, 60}, map[string]int{"ok": 3, "skipped overlap": 1}},
		{"a fan-out whose schedule is edited is not opened again",
			func(c *cluster) []scheduler.Job {
				return []scheduler.Job{c.job("j", "*/30 * * * * *", time.Second, parallel(3, 3, 1))}
			},
			func(c *cluster) []scheduler.Job {
				return []scheduler.Job{c.job("j", "*/20 * * * * *", time.Second, parallel(3, 3, 1))}
			},
			35 * time.Second, []int{30, 30, 40, 40, 60, 60}, map[string]int{"ok": 6}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				replicas := c.joinAll(2, tc.before(c))
				c.at(tc.at)
				reload(t, replicas, tc.after(c)...)
				c.at(62 * time.Second)
				for _, r := range replicas {
					r.stop()
				}
				c.at(100 * time.Second)
				want(t, "ticks that ran", c.ticks("j"), tc.ticks)
				want(t, "outcomes", c.outcomes("j"), tc.outcomes)
			})
		})
	}
}

func TestFaultyReloadChangesNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("a", []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second)})
		c.at(15 * time.Second)
		err := r.Reload(context.Background(), []scheduler.Job{c.job("j", "* * * * * *", time.Second), c.job("k", "never", time.Second), c.job("l", "@daily", 0, lease(time.Millisecond))})
		if err == nil || !strings.Contains(err.Error(), "job k") || !strings.Contains(err.Error(), "job l") {
			t.Errorf("%v", err)
		}
		c.at(45 * time.Second)
		want(t, "ticks that ran", c.ticks("j"), []int{10, 20, 30, 40})
	})
}

// Jobs that wait for Redis keep waiting through a reload, and new jobs begin when they are announced to Redis.
func TestReloadWhileTheServerIsAway(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("a", []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second, startDeadline(time.Minute))})
		c.at(15 * time.Second)
		r.wire.refuse()
		c.at(25 * time.Second)
		reload(t, []*replica{r}, c.job("j", "*/10 * * * * *", 2*time.Second, startDeadline(time.Minute)), c.job("k", "*/10 * * * * *", time.Second))
		c.at(31 * time.Second)
		r.wire.restore()
		c.at(65 * time.Second)
		want(t, "ticks that waited", c.ticks("j"), []int{10, 20, 30, 40, 50, 60})
		want(t, "ticks of the new job", c.ticks("k"), []int{40, 50, 60})
	})
}

// A job that is removed from all replicas, and brought back, has missed the ticks that were due meanwhile.
func TestReloadBringsAJobBack(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "*/10 * * * * *", time.Second, startDeadline(5*time.Second))}
		replicas := c.joinAll(2, jobs)
		c.at(15 * time.Second)
		reload(t, replicas)
		c.at(52 * time.Second)
		reload(t, replicas, jobs...)
		c.at(65 * time.Second)
		want(t, "ticks that ran", c.ticks("j"), []int{10, 50, 60})
		want(t, "outcomes", c.outcomes("j"), map[string]int{"missed down": 3, "ok": 3})
	})
}

func TestReloadOutsideOfRun(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.replica("a", nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := r.Reload(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before: %v", err)
		}
		r.run()
		reload(t, []*replica{r}, c.job("j", "* * * * * *", time.Minute))
		pass(2 * time.Second)
		r.stop()
		pass(time.Second)
		if err := r.Reload(context.Background(), nil); !errors.Is(err, scheduler.ErrDraining) {
			t.Errorf("while it drains: %v", err)
		}
		<-r.done
		if err := r.Reload(context.Background(), nil); !errors.Is(err, scheduler.ErrDraining) {
			t.Errorf("after: %v", err)
		}
	})
}

// slow answers when a test lets it.
type slow struct {
	scheduler.Claimer
	claims, inspections <-chan struct{} // closed then
	asked               func(election.InspectRequest)
}

func (s slow) Claim(ctx context.Context, claims []election.Claim) []election.Result {
	results := s.Claimer.Claim(ctx, claims)
	<-s.claims
	return results
}

func (s slow) Inspect(ctx context.Context, requests []election.InspectRequest) []election.State {
	states := s.Claimer.Inspect(ctx, requests)
	for _, q := range requests {
		s.asked(q)
	}
	<-s.inspections
	return states
}

// When a job is removed while the answer to its claim is under way, the grant is run, and no more ticks of it are claimed.
func TestReloadWhileAClaimIsUnderWay(t *testing.T) {
	inCluster(t, func(c *cluster) {
		claims, inspections := make(chan struct{}), make(chan struct{})
		close(inspections)
		r := c.join("a", []scheduler.Job{c.job("j", "30 * * * * *", time.Second, parallel(3, 3, 3))}, func(cfg *scheduler.Config) {
			cfg.Claimer = slow{cfg.Claimer, claims, inspections, func(election.InspectRequest) {}}
		})
		c.at(31 * time.Second)
		reload(t, []*replica{r})
		close(claims)
		c.at(3 * time.Minute)
		want(t, "ticks that ran", c.ticks("j"), []int{30})
	})
}

// A job that is removed is looked at until its last run has ended: else no replica would record a holder that dies.
func TestRemovedJobIsLookedAtWhileItRuns(t *testing.T) {
	inCluster(t, func(c *cluster) {
		jobs := []scheduler.Job{c.job("j", "30 * * * * *", time.Minute, lease(3*time.Second)), c.job("k", "40 * * * * *", 5*time.Second, lease(3*time.Second))}
		holder := c.join("holder", jobs)
		c.at(45 * time.Second)
		open := make(chan struct{})
		close(open)
		var looks atomic.Int64
		r := c.join("a", jobs, func(cfg *scheduler.Config) {
			cfg.Claimer = slow{cfg.Claimer, open, open, func(election.InspectRequest) { looks.Add(1) }}
		})
		pass(time.Second)
		reload(t, []*replica{holder, r})
		c.at(75 * time.Second)
		holder.die()
		c.at(90 * time.Second)
		want(t, "told", fmt.Sprint(c.outcomes("j"), c.outcomes("k")), "map[abandoned:1] map[ok:1]")
		before := looks.Load()
		c.at(5 * time.Minute)
		want(t, "looks since", looks.Load()-before, int64(0))
	})
}

// A job is added, and removed before the server has answered: it has no ticks.
func TestReloadTakesBackAJobThatWasJustAdded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		open, inspections := make(chan struct{}), make(chan struct{})
		close(open)
		r := c.join("a", nil, func(cfg *scheduler.Config) {
			cfg.Claimer = slow{cfg.Claimer, open, inspections, func(election.InspectRequest) {}}
		})
		pass(time.Second)
		reload(t, []*replica{r}, c.job("j", "* * * * * *", time.Millisecond))
		pass(time.Second)
		reload(t, []*replica{r})
		close(inspections)
		c.at(20 * time.Second)
		want(t, "ticks that ran", c.ticks("j"), []int(nil))
	})
}

// A claim is under way while a reload changes its job: the run has the lease and the slots that were asked for.
func TestReloadChangesNoClaimThatIsUnderWay(t *testing.T) {
	inCluster(t, func(c *cluster) {
		claims, open := make(chan struct{}), make(chan struct{})
		close(open)
		r := c.join("a", []scheduler.Job{c.job("j", "30 * * * * *", 5*time.Second, lease(3*time.Second), parallel(3, 1, 1))}, func(cfg *scheduler.Config) {
			cfg.Claimer = slow{cfg.Claimer, claims, open, func(election.InspectRequest) {}}
		})
		c.at(30500 * time.Millisecond)
		reload(t, []*replica{r}, c.job("j", "30 * * * * *", 5*time.Second, lease(10*time.Minute)))
		close(claims)
		c.at(50 * time.Second)
		want(t, "told", c.told("j")[30], []string{"ok"})
		want(t, "slots", c.runs("j")[0].Slots, 3)
	})
}

// Reloads and looks at all jobs come from goroutines of their own.
func TestReloadBesideASweep(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.join("a", nil)
		var beside sync.WaitGroup
		for i := range 20 {
			beside.Go(func() { reload(t, []*replica{r}, c.job("j", "* * * * * *", time.Duration(i)*100*time.Millisecond)) })
			beside.Go(func() {
				if err := r.Sweep(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		beside.Wait()
		c.at(5 * time.Second)
		if n := len(c.runs("j")); n < 2 {
			t.Errorf("%d runs", n)
		}
		c.checkRuns("j", 1, 1)
	})
}

// TestReloadBringsBackAJobThatRuns: its runs count, as if it had never been away.
func TestReloadBringsBackAJobThatRuns(t *testing.T) {
	inCluster(t, func(c *cluster) {
		job := c.job("j", everyTen, 25*time.Second, parallel(2, 1, 1))
		r := c.join("r", []scheduler.Job{job})
		c.at(12 * time.Second)
		reload(t, c.replicas)
		c.at(13 * time.Second)
		reload(t, c.replicas, job)
		c.at(58 * time.Second)
		want(t, "starts", c.starts("j"), []int{10, 35})
		want(t, "ticks that ran", c.ticks("j"), []int{10, 30}) // when the first one has ended
		r.leave()
	})
}

// builtInZone returns the built-in data of a zone under another zone's name, as other zone data has it.
func builtInZone(t *testing.T, data, name string) *time.Location {
	t.Helper()
	archive := must(zip.OpenReader("cronspec/zoneinfo.zip"))
	defer archive.Close()
	text := must(fs.ReadFile(archive, data))
	return must(time.LoadLocationFromTZData(name, text))
}

// A reload that brings other zone data moves the coming ticks, although the text of the schedule is the same.
func TestReloadTakesOtherZoneData(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after string // the data of the zone after the reload
		ticks []int
	}{
		{"an hour earlier", "Africa/Abidjan", []int{30}},
		{"the same rules", "Atlantic/Azores", []int{3630}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before, after := builtInZone(t, "Atlantic/Azores", "Atlantic/Azores"), builtInZone(t, tc.after, "Atlantic/Azores")
			inCluster(t, func(c *cluster) {
				in := func(zone *time.Location) scheduler.Job {
					return c.job("j", "30 0 0 * * *", time.Second, func(j *scheduler.Job) { j.Location = zone })
				}
				replicas := c.joinAll(2, []scheduler.Job{in(before)})
				c.at(5 * time.Second)
				reload(t, replicas, in(after))
				c.at(3700 * time.Second)
				want(t, "ticks that ran", c.ticks("j"), tc.ticks)
			})
		})
	}
}
