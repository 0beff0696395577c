package leader

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/notify"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
	"github.com/cronclave/cronclave/internal/replica/dispatch"
	"github.com/cronclave/cronclave/locking"
)

// TestProblemsForNotifications reports each problem only when it is settled, and nothing while a part is unknown.
func TestProblemsForNotifications(t *testing.T) {
	t.Parallel()
	_, conn, j := redistest.StartJournal(t)
	now := time.Now().Truncate(time.Millisecond)
	cfg := &config.Config{Pools: map[string]config.Pool{"db": {Slots: 1}}}
	alive := []journal.Replica{{Name: "a", ConfigDigest: "1"}}
	var last *reading
	var full *[]dispatch.Problem
	r := problemReader{journal: j, config: func() *config.Config { return cfg }, alive: func() []journal.Replica { return alive }, now: func() time.Time { return now },
		last: func() *reading { return last }, full: func() *[]dispatch.Problem { return full }}
	want := func(keys ...string) {
		t.Helper()
		list, err := r.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, p := range list {
			got = append(got, p.Name+" "+p.Subject+map[bool]string{true: "?"}[p.Unsettled])
		}
		if slices.Sort(got); !slices.Equal(got, keys) {
			t.Errorf("problems %q, want %q", got, keys)
		}
	}
	if _, err := r.read(t.Context()); err == nil {
		t.Error("nothing is read yet")
	}
	if last = new(reading); full == nil {
		if _, err := r.read(t.Context()); err == nil {
			t.Error("the pools are not read yet")
		}
	}
	full = &[]dispatch.Problem{}
	if alive = nil; full != nil {
		if _, err := r.read(t.Context()); err == nil {
			t.Error("the replicas are not read yet")
		}
	}
	alive = []journal.Replica{{Name: "a", ConfigDigest: "1"}}
	want([]string{}...)

	*last = reading{lost: map[string]time.Time{"b": now}, late: []jobCondition{{"j", cluster.Condition{Code: cluster.Slow}}}}
	*full = []dispatch.Problem{{Name: notify.PoolFull, Subject: "db"}}
	alive = append(alive, journal.Replica{Name: "c", ConfigDigest: "2"})
	for _, in := range []journal.Incident{{Kind: journal.Outage, Interval: journal.Interval{From: now.Add(-time.Hour), To: now.Add(-time.Minute)}, Replica: "a"},
		{Kind: journal.DataLoss, Interval: journal.Interval{From: now.Add(-5 * time.Second), To: now}, Replica: "a"}} {
		if err := j.NoteIncident(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	want("config_differs ?", "pool_full db", "redis outage", "replica_lost b", "slow j") // the newest incident is not settled
	now = now.Add(30 * time.Second)
	want("config_differs ", "pool_full db", "redis data_loss", "redis outage", "replica_lost b", "slow j")
	conn.HSet(t.Context(), "cronclave:default:incidents", "outage 1 junk", "junk")                          // hides nothing else
	r = problemReader{journal: j, config: r.config, alive: r.alive, now: r.now, last: r.last, full: r.full} // the next leader does not know since when
	want("config_differs ?", "pool_full db", "redis data_loss", "redis outage", "replica_lost b", "slow j")
	alive, cfg.Pools, now = alive[:1], nil, now.Add(2*time.Hour)
	want("replica_lost b", "slow j")
}

// TestDamagedLockHidesNoOtherJob reads the state of the other jobs.
func TestDamagedLockHidesNoOtherJob(t *testing.T) {
	t.Parallel()
	_, conn, j := redistest.StartJournal(t)
	locks, err := locking.New(conn.LockConfig("default", "r"))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	elector, err := election.New(election.Config{Locks: locks})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	old := now.Add(-time.Hour)
	if err := j.Record(t.Context(), []journal.Record{{RunID: "1", Job: "late", Outcome: journal.OutcomeOK, Started: old, Finished: old}}); err != nil {
		t.Fatal(err)
	}
	jobs := []journal.JobInfo{{Name: "bad", Enabled: true}, {Name: "late", Enabled: true, StaleAfterMS: 1000}}
	settings := conn.LockConfig("default", "r")
	if err := conn.Set(t.Context(), settings.Prefix+election.JobLock("bad"), "junk", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r := &clusterReader{journal: j, elector: elector, config: func() *config.Config { return new(config.Config) }, describe: func(context.Context) ([]journal.JobInfo, error) { return jobs, nil }, now: func() time.Time { return now }}
	if _, err := r.readCluster(t.Context()); err != nil {
		t.Error(err)
	}
	if last := r.last.Load(); last == nil || len(last.late) != 1 || last.late[0].job != "late" {
		t.Errorf("read %+v", last)
	}
}
