package replica

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/locking"
)

// A pool that is full for a minute while a run waits is logged once, with its holder and how many wait since when, and again when it was not full for minutes.
// A pool and a job whose data is damaged change nothing about that.
func TestFullPoolIsLoggedOnce(t *testing.T) {
	t.Parallel()
	_, conn, j := startJournal(t)
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
		a := elector.Claim(t.Context(), []election.Claim{{Job: job, ID: job, Trigger: "manual", Lease: time.Hour}})[0]
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
