package leader

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
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
		all = errors.Join(all, h.elector.Inspect(ctx, []election.InspectRequest{{Lock: election.JobLock(name)}})[0].Err)
	}
	return all
}

// run grants a job's tick of this second.
func (h *hall) run(elector *election.Elector, job string) *election.Term {
	h.t.Helper()
	elector.Inspect(h.t.Context(), []election.InspectRequest{{Lock: election.JobLock(job), Schedule: "s"}})
	time.Sleep(time.Second)
	tick := time.Now().Truncate(time.Second)
	r := elector.Claim(h.t.Context(), []election.Claim{{Lock: election.JobLock(job), ID: job, Slots: 1, Lease: 30 * time.Second, Trigger: "schedule",
		Tick: &election.Tick{At: tick, Previous: tick.Add(-time.Second), Schedule: "s"}}})[0]
	if r.Verdict != election.Granted {
		h.t.Fatalf("%+v", r)
	}
	return election.TermOf(r)
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
		for _, job := range []string{"done", "kept"} {
			r := journal.Record{RunID: "ok", Job: job, Outcome: journal.OutcomeOK, Started: time.Now(), Finished: time.Now(), DurationMS: new(int64)}
			if err := h.journal.Record(t.Context(), []journal.Record{r}); err != nil {
				t.Fatal(err)
			}
		}
		facts := func(job string) int64 {
			return h.redis.Exists(t.Context(), "cronclave:default:{"+job+"}:streak", "cronclave:default:{"+job+"}:took").Val()
		}
		h.expect("at first", all, nil)
		time.Sleep(4 * DescribeEvery)
		describe("kept")
		h.expect("without them", all, []string{"back", "dead", "done"})
		time.Sleep(forgetAfter - 5*DescribeEvery)
		describe("kept", "back")
		h.expect("before a day has passed", all, []string{"dead", "done"})
		if n := facts("done"); n != 2 {
			t.Errorf("before a day has passed: %d keys of the last success", n)
		}
		time.Sleep(2 * DescribeEvery)
		h.expect("after a day", []string{"back", "dead", "kept"}, []string{"dead"})
		if done, kept := facts("done"), facts("kept"); done != 0 || kept != 2 {
			t.Errorf("after a day: %d and %d keys of the last success", done, kept)
		}
		if err := h.elector.DeleteOrphans(t.Context(), "dead", term.ID()); err != nil {
			t.Fatal(err)
		}
		h.expect("when its run is recorded", []string{"back", "kept"}, nil)
	})
}

// TestNewLeaderForgetsNoJobAtOnce: after an outage of all replicas, the first one that is up is the leader, and others describe their jobs later.
func TestNewLeaderForgetsNoJobAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		if err := h.journal.DescribeJobs(t.Context(), []journal.JobInfo{{Name: "j", Seen: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		h.began = time.Now()
		for minute := range 4 {
			h.maintainData(t.Context(), nil)
			if jobs, err := h.journal.Jobs(t.Context()); err != nil || (len(jobs) == 1) != (minute < 3) {
				t.Errorf("after minute %d: %+v, %v", minute, jobs, err)
			}
			time.Sleep(DescribeEvery)
		}
	})
}

// TestReplicaIsLostWhenItStaysAway: after an outage of Redis no entry is there, and the replicas come back one after the other.
func TestReplicaIsLostWhenItStaysAway(t *testing.T) {
	var w lostWatch
	begin := time.Now()
	for i, step := range []struct {
		after         time.Duration
		missing, lost []string
	}{
		{0, []string{"a-12345678", "b-12345678"}, nil},
		{cluster.RegisterEvery, []string{"a-12345678"}, nil},
		{2 * cluster.RegisterEvery, []string{"a-12345678", "b-12345678"}, []string{"a-12345678"}}, // b stood still again
		{3 * cluster.RegisterEvery, []string{"b-12345678"}, nil},
		{4 * cluster.RegisterEvery, []string{"b-12345678"}, []string{"b-12345678"}},
	} {
		var missing []journal.LostReplica
		for _, id := range step.missing {
			missing = append(missing, journal.LostReplica{ID: id})
		}
		var lost []string
		for _, l := range w.confirmedLost(missing, begin.Add(step.after)) {
			lost = append(lost, l.ID)
		}
		if !slices.Equal(lost, step.lost) {
			t.Errorf("look %d: lost %v, want %v", i, lost, step.lost)
		}
	}
	if got := journal.NameOf("eu-west-1-abcdefgh"); got != "eu-west-1" {
		t.Errorf("the name is %q", got)
	}
}

// A pool that is full for a minute while a run waits is logged once, with its holder and how many wait since when, and again when it was not full for minutes.
// A pool and a job whose data is damaged change nothing about that.
func TestFullPoolIsLoggedOnce(t *testing.T) {
	t.Parallel()
	_, conn, j := redistest.StartJournal(t)
	locks, err := locking.New(conn.LockConfig("default", "r1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	elector, err := election.New(election.Config{Locks: locks})
	if err != nil {
		t.Fatal(err)
	}
	o, err := cluster.New(cluster.Config{Conn: conn, Journal: j, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	var jobs []journal.JobInfo
	for _, name := range []string{"export", "load", "broken"} {
		jobs = append(jobs, journal.JobInfo{Name: name, Schedule: []string{"@daily"}, Timezone: "UTC", Pool: "warehouse", PoolSlots: 1, Seen: time.Now()})
	}
	if err := j.DescribeJobs(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	enter := func(job string) *election.Term {
		t.Helper()
		a := elector.Claim(t.Context(), []election.Claim{{Lock: election.JobLock(job), ID: job, Trigger: "manual", Lease: time.Hour}})[0]
		slot, _, err := elector.TryAcquirePool(t.Context(), election.Entry{Pool: "warehouse", Slots: 1, Lease: time.Hour, Run: job})
		if a.Verdict != election.Granted || err != nil {
			t.Fatal(a.Verdict, a.Err, err)
		}
		return slot
	}
	var log bytes.Buffer
	at := time.Now()
	watch := poolWatch{operator: o, log: hclog.New(&hclog.LoggerOptions{Output: &log}), now: func() time.Time { return at }}
	look := func(what string, want bool) {
		t.Helper()
		log.Reset()
		watch.checkPools(t.Context(), map[string]config.Pool{"warehouse": {Slots: 1}, "damaged": {Slots: 1}})
		said := log.String()
		if warned := strings.Contains(said, "[WARN]  pool is full while others wait for a slot: code=pool_full pool=warehouse holder=\"job export on r1\" waiters=1") &&
			strings.Contains(said, " since=20"); warned != want || strings.Count(said, "\n") > 1 {
			t.Errorf("%s: %q", what, said)
		}
		at = at.Add(lookAtPools)
	}
	fill := func(what string, want bool) {
		t.Helper()
		for range fullFor / lookAtPools {
			look(what+", for less than a minute", false)
		}
		look(what+", for a minute", want)
	}
	conn.Set(t.Context(), "cronclave:default:{damaged}:pool", "text", 0)
	conn.Set(t.Context(), "cronclave:default:{broken}:job", "text", 0)
	look("nobody uses it", false)
	slot := enter("export")
	fill("nobody waits", false)
	enter("load")
	fill("full", true)
	fill("still full", false)
	if err := slot.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	free := func(looks int) {
		t.Helper()
		for range looks {
			look("a free slot", false)
		}
		again, ok, err := elector.TryAcquirePool(t.Context(), election.Entry{Pool: "warehouse", Slots: 1, Lease: time.Hour, Run: "export"})
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		slot = again
	}
	free(2)
	fill("full again soon", false)
	if err := slot.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	free(int(freeFor / lookAtPools))
	fill("full again after minutes", true)
}

// A pool that two jobs share is full at some looks and not at others, and each waiter is another one. Neither is worth a line.
func TestPoolThatIsFullAtTimesIsNotLogged(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	ago := func(at time.Time, d time.Duration) *time.Time { at = at.Add(-d); return &at }
	for name, waiting := range map[string]func(i int, at time.Time) *time.Time{ // since when the first waiter waits, nil if it is not known
		"full at each other look":    func(i int, at time.Time) *time.Time { return ago(at, time.Duration(i%2)*time.Hour) },
		"a new waiter at each look":  func(_ int, at time.Time) *time.Time { return ago(at, fullFor-time.Second) },
		"not known since when":       func(int, time.Time) *time.Time { return nil },
		"it waits longer, up to now": func(i int, _ time.Time) *time.Time { return ago(begin, -time.Duration(i)*lookAtPools) },
	} {
		var w poolWatch
		for i := range 40 {
			at := begin.Add(time.Duration(i) * lookAtPools)
			p := cluster.Pool{Lock: cluster.Lock{Name: "p", Slots: 1, Waiting: []cluster.Waiter{{Since: waiting(i, at)}}}}
			var full []cluster.Pool
			if since := p.Waiting[0].Since; since == nil || since.Before(at) {
				full = append(full, p)
			}
			if list := w.duePools(full, at); len(list) > 0 {
				t.Errorf("%s: logged at look %d", name, i)
			}
		}
	}
}

// TestFullPoolIsOneProblem keeps a problem while waiters change and slots are free for a moment, and a leader that does not know it yet does not end it.
func TestFullPoolIsOneProblem(t *testing.T) {
	t.Parallel()
	at := time.Now()
	w := &poolWatch{}
	look := func(waits time.Duration) (state string) {
		var full []cluster.Pool
		if since := at.Add(-waits); waits > 0 {
			full = []cluster.Pool{{Lock: cluster.Lock{Name: "p", Slots: 1, Waiting: []cluster.Waiter{{Since: &since}}}}}
		}
		w.duePools(full, at)
		problems := w.listProblems(map[string]config.Pool{"p": {Slots: 1}}, at)
		at = at.Add(lookAtPools)
		for _, p := range problems {
			state += map[bool]string{true: "unsettled", false: "on"}[p.Unsettled]
		}
		return state
	}
	for range 4 {
		if got := look(time.Hour); got != "unsettled" {
			t.Error(got)
		}
	}
	for i := range 40 {
		if got := look([]time.Duration{time.Hour, time.Second, 0}[i%3]); got != "on" {
			t.Errorf("look %d: %q", i, got)
		}
	}
	for _, first := range []time.Duration{time.Second, 0} { // what the next leader finds: the pool, or a slot that is free for a moment
		w = &poolWatch{}
		if got := look(first); got != "unsettled" {
			t.Errorf("%v: %q", first, got)
		}
		at = at.Add(freeFor - 2*lookAtPools)
		if got := look(0); got != "unsettled" {
			t.Errorf("%v: %q", first, got)
		}
		if at = at.Add(lookAtPools); look(0) != "" {
			t.Errorf("%v: not over", first)
		}
	}
}
