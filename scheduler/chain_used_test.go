package scheduler

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/lease"
)

// family answers looks at a job and at the one before it with states of different moments, as two servers do, and keeps what it was told is used.
type family struct {
	*oracle
	child election.State
	full  bool // the lock of the parent has no room for another follower

	told sync.Mutex
	used []time.Time
}

func (f *family) Inspect(ctx context.Context, requests []election.InspectRequest) []election.State {
	states := f.oracle.Inspect(ctx, requests)
	for i, q := range requests {
		switch {
		case q.Follower != "" && f.full:
			states[i] = election.State{Err: lease.ErrTooManyFollowers}
		case q.Follower != "": // asked before the tick was due
			f.told.Lock()
			f.used = append(f.used, q.Used)
			f.told.Unlock()
			states[i].Through = f.child.Decided.Add(-time.Second)
		case q.Lock == election.JobLock("child"):
			now := states[i].Now
			states[i] = f.child
			states[i].Now = now
		}
	}
	return states
}

// A run that goes on, an orphan and a tick that was given back may be claimed once more, so the outcome that triggered them is still needed, whatever
// the parents' locks contained at another moment.
// Promise: P5
func TestPendingTickIsNotUsed(t *testing.T) {
	tick := time.Date(1999, 12, 31, 12, 0, 0, 0, time.UTC)
	run := election.Run{ID: "run", Tick: tick, Attempt: 1, Expires: tick.Add(100 * time.Hour)}
	for name, child := range map[string]election.State{
		"over":       {},
		"running":    {Running: []election.Run{{ID: "by hand"}, run}},
		"an orphan":  {Orphans: []election.Run{run}},
		"given back": {Open: []time.Time{tick}},
	} {
		t.Run(name, func(t *testing.T) {
			child.Decided, child.Before = tick, tick
			f := &family{oracle: &oracle{}, child: child}
			after := idle("child", "")
			after.Schedule, after.After = nil, []string{"parent"}
			consult(t, f, []Job{idle("parent", "0 0 1 1 *"), after}, func(t *testing.T, _ *Scheduler) {
				pass(5 * time.Minute)
				f.told.Lock()
				defer f.told.Unlock()
				if len(f.used) < 3 {
					t.Fatalf("%d looks", len(f.used))
				}
				if last := f.used[len(f.used)-1]; last.Before(tick) != (name != "over") {
					t.Errorf("used up to %v, and the tick is %v", last, tick)
				}
			})
		})
	}
}

// A job that its parent's lock refuses as a follower is not silent: the log names the parent, not too often.
// Promise: P9
func TestTooManyFollowersAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after := idle("child", "")
		after.Schedule, after.After = nil, []string{"parent"}
		var log bytes.Buffer
		s, err := New(Config{Jobs: []Job{idle("parent", "0 0 1 1 *"), after}, Claimer: &family{oracle: &oracle{}, full: true},
			Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: &log, DisableTime: true})})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 110*time.Second)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		const line = "[ERROR] request about a job refused; ticks of jobs after it wait: job=parent error=\"more than 4000 locks would follow it\"\n"
		if log.String() != line+line {
			t.Error(log.String())
		}
	})
}
