package replica

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/locking"
)

// hall is a Redis in fake time, with the house of its leader.
type hall struct {
	*housekeeping
	t      *testing.T
	begin  time.Time
	server *embedded.Server
	redis  *redis.Client
	swept  []string
}

func newHall(t *testing.T) *hall {
	t.Helper()
	server, err := embedded.Start(embedded.Config{DialOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	h := &hall{t: t, begin: time.Now(), server: server}
	rdb, elector, end := h.member("leader")
	t.Cleanup(end)
	j, err := journal.New(journal.Config{Redis: rdb, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	h.redis = rdb
	h.housekeeping = &housekeeping{journal: j, elector: elector, now: time.Now, log: hclog.NewNullLogger(), sweep: h.sweepUp}
	return h
}

// member returns a client of the server, which dies by end: nothing is released.
func (h *hall) member(name string) (rdb *redis.Client, elector *election.Elector, end func()) {
	h.t.Helper()
	rdb = redis.NewClient(&redis.Options{Addr: h.server.Addr(), Dialer: h.server.Dial, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	locks, err := locking.New(locking.Config{Redis: rdb, Prefix: "cronclave:default:", Owner: name,
		Clock: func() time.Duration { return time.Since(h.begin) }})
	if err != nil {
		h.t.Fatal(err)
	}
	if elector, err = election.New(election.Config{Locks: locks}); err != nil {
		h.t.Fatal(err)
	}
	return rdb, elector, func() {
		_ = rdb.Close()
		_ = locks.Close()
		time.Sleep(time.Minute) // of fake time: the client's work in the background ends
	}
}

// sweepUp looks at jobs as the scheduler does, and leaves their orphans.
func (h *hall) sweepUp(ctx context.Context, idle ...string) error {
	h.swept = slices.Sorted(slices.Values(idle))
	var all error
	for _, name := range idle {
		all = errors.Join(all, h.elector.Inspect(ctx, []election.InspectRequest{{Job: name}})[0].Err)
	}
	return all
}

// run grants a job's tick of this second.
func (h *hall) run(elector *election.Elector, job string) *election.Term {
	h.t.Helper()
	elector.Inspect(h.t.Context(), []election.InspectRequest{{Job: job, Schedule: "s"}})
	time.Sleep(time.Second)
	tick := time.Now().Truncate(time.Second)
	r := elector.Claim(h.t.Context(), []election.Claim{{Job: job, ID: job, Slots: 1, Lease: 30 * time.Second, Trigger: "schedule",
		Tick: tick, Previous: tick.Add(-time.Second), Schedule: "s"}})[0]
	if r.Verdict != election.Granted {
		h.t.Fatalf("%+v", r)
	}
	return r.Term
}

// expect keeps the house, and then compares of which jobs there are locks, and which are gone.
func (h *hall) expect(what string, locked, gone []string) {
	h.t.Helper()
	h.maintainData(h.t.Context(), []string{"disabled"})
	var got []string
	for _, job := range []string{"back", "done", "dead", "kept"} {
		if h.redis.Exists(h.t.Context(), "cronclave:default:{"+job+"}:job").Val() == 1 {
			got = append(got, job)
		}
	}
	names, err := h.journal.GoneJobs(h.t.Context())
	if absent := slices.Sorted(maps.Keys(names)); err != nil || !slices.Equal(got, locked) || !slices.Equal(absent, gone) {
		h.t.Errorf("%s: locks of %q, gone are %q, %v; want %q and %q", what, got, absent, err, locked, gone)
	}
	for _, job := range append(gone, "disabled") {
		if !slices.Contains(h.swept, job) {
			h.t.Errorf("%s: %s is not swept, only %q", what, job, h.swept)
		}
	}
}

// The data of a job that no replica has is removed after a day, unless a run is still to be recorded; a job that comes back before finds its ledger.
// Promise: P6
func TestLeaderSweepsJobsThatNobodyHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		describe := func(names ...string) {
			t.Helper()
			var infos []journal.JobInfo
			for _, name := range names {
				infos = append(infos, journal.JobInfo{Name: name, Seen: time.Now()})
			}
			if err := h.journal.DescribeJobs(t.Context(), infos); err != nil {
				t.Fatal(err)
			}
		}
		ended := func(job string) {
			t.Helper()
			if err := h.run(h.elector, job).End(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ended("back")
		ended("done")
		ended("kept")
		_, holder, die := h.member("holder")
		term := h.run(holder, "dead")
		die()
		describe("back", "done", "dead", "kept")
		all := []string{"back", "done", "dead", "kept"}
		h.expect("at first", all, nil)
		time.Sleep(4 * describeEvery)
		describe("kept")
		h.expect("without them", all, []string{"back", "dead", "done"})
		time.Sleep(forgetAfter - 5*describeEvery)
		describe("kept", "back")
		h.expect("before a day has passed", all, []string{"dead", "done"})
		time.Sleep(2 * describeEvery)
		h.expect("after a day", []string{"back", "dead", "kept"}, []string{"dead"})
		if err := h.elector.DeleteOrphans(t.Context(), "dead", term.ID()); err != nil {
			t.Fatal(err)
		}
		h.expect("when its run is recorded", []string{"back", "kept"}, nil)
	})
}
