package scheduler_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// operator pauses and resumes the job j as the commands do: each time with a client that has observed nothing.
type operator struct{ *cluster }

func (o operator) order(do func(e *election.Elector) []election.Paused) {
	o.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: o.server.Addr(), Dialer: o.server.Dial, ContextTimeoutEnabled: true, MaxRetries: -1})
	defer rdb.Close()
	locks, err := locking.New(locking.Config{Redis: rdb, Prefix: "cronclave:test:", Owner: "operator",
		Clock: func() time.Duration { return time.Since(o.start) }})
	if err != nil {
		o.t.Fatal(err)
	}
	defer locks.Close()
	e, err := election.New(election.Config{Locks: locks})
	if err != nil {
		o.t.Fatal(err)
	}
	for _, p := range do(e) {
		if p.Err != nil {
			o.t.Error(p.Err)
		}
	}
}

func (o operator) pause(d time.Duration) {
	o.t.Helper()
	o.order(func(e *election.Elector) []election.Paused {
		return e.Pause(context.Background(), []string{"j"}, election.PauseOrder{For: d, Outcome: run.SkippedPaused, Reason: "a test"})
	})
}

func (o operator) resume() {
	o.t.Helper()
	o.order(func(e *election.Elector) []election.Paused { return e.Resume(context.Background(), []string{"j"}) })
}

// checkRecordedOnce demands that the records of a tick without a run agree.
func (c *cluster) checkRecordedOnce(job string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	told := map[string]string{}
	for _, r := range c.records {
		if r.Job != job || r.Token != 0 {
			continue
		}
		if known, ok := told[r.RunID]; ok && known != verdict(r) {
			c.t.Errorf("P6: %s is told as %s, and as %s", r.RunID, known, verdict(r))
		}
		told[r.RunID] = verdict(r)
	}
}

// pauseCases are of ticks of each minute, which may start for ten seconds and run for one. Something happens at seconds of the test.
var pauseCases = []struct {
	name     string
	edits    []edit
	happens  func(o operator, all []*replica, join func())
	ran      []int
	outcomes map[string]int
}{
	{"until it is resumed", nil, func(o operator, _ []*replica, _ func()) {
		o.at(90 * time.Second)
		o.pause(0)
		o.at(270 * time.Second)
		o.resume()
	}, []int{60, 300, 360, 420, 480}, map[string]int{"ok": 5, "skipped paused": 3}},
	{"for a time", nil, func(o operator, _ []*replica, _ func()) {
		o.at(90 * time.Second)
		o.pause(3 * time.Minute)
	}, []int{60, 300, 360, 420, 480}, map[string]int{"ok": 5, "skipped paused": 3}},
	{"resumed before its time", nil, func(o operator, _ []*replica, _ func()) {
		o.at(90 * time.Second)
		o.pause(time.Hour)
		o.at(150 * time.Second)
		o.resume()
	}, []int{60, 180, 240, 300, 360, 420, 480}, map[string]int{"ok": 7, "skipped paused": 1}},
	{"for longer, while it is on", nil, func(o operator, _ []*replica, _ func()) {
		o.at(90 * time.Second)
		o.pause(time.Minute)
		o.at(130 * time.Second)
		o.pause(3 * time.Minute)
	}, []int{60, 360, 420, 480}, map[string]int{"ok": 4, "skipped paused": 4}},
	{"Redis forgets while it is on", nil, func(o operator, _ []*replica, _ func()) {
		o.at(90 * time.Second)
		o.pause(0)
		o.at(130 * time.Second)
		o.forget()
		o.at(270 * time.Second)
		o.resume()
	}, []int{60, 300, 360, 420, 480}, map[string]int{"ok": 5, "skipped paused": 3}},
	{"Redis forgets before anybody was stopped", nil, func(o operator, _ []*replica, _ func()) {
		o.at(100 * time.Second) // no replica watches the run of 60 any more
		o.pause(0)
		o.at(101 * time.Second)
		o.forget()
		o.at(270 * time.Second)
		o.resume()
	}, []int{60, 300, 360, 420, 480}, map[string]int{"ok": 5, "skipped paused": 3}},
	{"Redis forgets when it is over", nil, func(o operator, _ []*replica, _ func()) {
		o.at(90 * time.Second)
		o.pause(0)
		o.at(270 * time.Second)
		o.resume()
		o.at(271 * time.Second)
		o.forget()
	}, []int{60, 360, 420, 480}, map[string]int{"ok": 4, "skipped paused": 3, "missed redis": 1}}, // it is closed for a lease of 30s
	{"Redis forgets, and is resumed before anybody told it", nil, func(o operator, _ []*replica, _ func()) {
		o.at(90 * time.Second)
		o.pause(0)
		o.at(255 * time.Second)
		o.forget()
		o.resume()
	}, []int{60, 360, 420, 480}, map[string]int{"ok": 4, "skipped paused": 3, "missed redis": 1}},
	{"Redis is away", nil, func(o operator, _ []*replica, _ func()) {
		o.at(90 * time.Second)
		o.pause(0)
		o.away(170*time.Second, 255*time.Second, (*wire).refuse)
		o.resume()
	}, []int{60, 300, 360, 420, 480}, map[string]int{"ok": 5, "skipped paused": 3}},
	{"all are down, and it is over when they are back", nil, down, []int{60, 420, 480}, map[string]int{"ok": 3, "skipped paused": 3, "missed down": 2}},
	{"paused time is not caught up", []edit{catchUp(scheduler.CatchUpAll, 0)}, down, []int{60, 300, 360, 420, 480}, map[string]int{"ok": 5, "skipped paused": 3}},
	{"nor is the latest", []edit{catchUp(scheduler.CatchUpLatest, 0)}, func(o operator, all []*replica, join func()) {
		o.at(90 * time.Second)
		o.pause(0)
		leave(all)
		o.at(390 * time.Second)
		o.resume()
		join()
	}, []int{60, 420, 480}, map[string]int{"ok": 3, "skipped paused": 5}},
	{"all are down, and it is on when they are back", nil, func(o operator, all []*replica, join func()) {
		o.at(90 * time.Second)
		o.pause(0)
		leave(all)
		o.at(390 * time.Second)
		join()
		o.at(450 * time.Second)
		o.resume()
	}, []int{60, 480}, map[string]int{"ok": 2, "skipped paused": 6}},
}

// down has all replicas leave in the pause, and come back when it is over.
func down(o operator, all []*replica, join func()) {
	o.at(90 * time.Second)
	o.pause(0)
	leave(all)
	o.at(270 * time.Second)
	o.resume()
	o.at(390 * time.Second)
	join()
}

func leave(all []*replica) {
	for _, r := range all {
		r.leave()
	}
}

// During a pause the right ticks run, and each of the others has one outcome, whichever replica claims and whatever happens meanwhile.
// Promise: P6
func TestPause(t *testing.T) {
	for _, tc := range pauseCases {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				edits := append([]edit{startDeadline(10 * time.Second)}, tc.edits...)
				jobs := []scheduler.Job{c.job("j", "* * * * *", time.Second, edits...)}
				all := c.joinAll(3, jobs)
				tc.happens(operator{c}, all, func() { c.joinAll(3, jobs) })
				c.at(539 * time.Second)
				want(t, "ticks that ran", c.ticks("j"), tc.ran)
				want(t, "outcomes", c.outcomes("j"), tc.outcomes)
				for _, r := range c.words("j") {
					if verdict(r) == "missed redis" && r.Detail != "" && !strings.HasPrefix(r.Detail, "Redis had lost its data, ") {
						t.Errorf("the record of %d says %q", c.second(r.Tick), r.Detail)
					}
				}
				c.checkRuns("j", 1, 1)
				c.checkRecordedOnce("j")
			})
		})
	}
}

// TestPauseOfATickThatWaits for the end of the run before it: the pause settles it, and leaves the run alone.
// Promise: P6
func TestPauseOfATickThatWaits(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.joinAll(3, []scheduler.Job{c.job("j", "* * * * *", 150*time.Second, queued, startDeadline(5*time.Minute))})
		c.at(130 * time.Second)
		operator{c}.pause(0)
		c.at(270 * time.Second)
		want(t, "outcomes", c.outcomes("j"), map[string]int{"ok": 1, "skipped paused": 3})
		operator{c}.resume()
		c.at(301 * time.Second)
		want(t, "ticks that ran", c.ticks("j"), []int{60, 300})
	})
}
