package dashboard

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// TestPoolsAndLocks are on the page of the cluster, with those that hold and those that wait.
func TestPoolsAndLocks(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.shows("/cluster", "No job uses a pool.", "No lock of cronclave lock has been held")
	s.fill()
	info := func(name string) journal.JobInfo {
		return journal.JobInfo{Name: name, Enabled: true, Timezone: "UTC", Pool: "warehouse", PoolSlots: 1, Seen: time.Now()}
	}
	s.must(s.journal.DescribeJobs(t.Context(), []journal.JobInfo{info("export"), info("load")}))
	for _, job := range []string{"export", "load"} {
		if r := s.elector.Claim(t.Context(), []election.Claim{{Lock: election.JobLock(job), ID: job + "-run", Slots: 1, Trigger: "manual", Lease: time.Minute}})[0]; election.TermOf(r) == nil {
			t.Fatalf("%+v", r)
		}
		if _, _, err := s.elector.TryAcquirePool(t.Context(), election.Entry{Pool: "warehouse", Slots: 1, Lease: time.Minute, Run: job + "-run"}); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	for i := range cluster.MostWaiting + 2 {
		s.must(s.journal.NoteLock(t.Context(), journal.LockUse{ID: fmt.Sprint("w", i), Lock: "deploy", Slots: 2, Owner: fmt.Sprintf("host%d <b>", i), Since: now.Add(-time.Minute)}, now, now.Add(time.Minute)))
	}
	s.handler = s.fresh()
	s.await("the pool", func() bool { return strings.Contains(s.get("/cluster").Body.String(), "warehouse") })
	s.shows("/cluster", "1 of 1 slot held, 1 waiting", "holds slot 0", `href="/jobs/export/runs/export-run"`, `href="/jobs/load/runs/load-run"`, `href="/jobs/load">load</a>`,
		"0 of 2 slots held, 12 waiting", "host0 &lt;b&gt;", "2 more wait.", `rowspan="11"`)
	s.shows("/?outcome=late", "1 of 7 jobs", "waits for pool warehouse")
	if body := s.get("/cluster").Body.String(); strings.Contains(body, "<b>,") || !strings.Contains(body, "<time datetime=") {
		t.Error(body)
	}
}

// TestReplicasAndRedisAreShown: how loaded a replica is, how close a lease came to its end, the servers of Redis, and its limits.
func TestReplicasAndRedisAreShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	now := time.Now()
	for name, left := range map[string]int64{"late": 9_100, "prompt": 20_100} {
		s.register(journal.Replica{ID: name + "-abcdefgh", Name: name, Version: "v1", Started: now, ConfigDigest: "a", Running: 3, MaxRunning: 8,
			LeaseMargin: &journal.LeaseMargin{LeftMS: left, LeaseMS: 30_000}})
	}
	s.register(journal.Replica{ID: "old-abcdefgh", Name: "old", Version: "v0", Started: now, ConfigDigest: "a", Running: 7})
	facts, err := s.operator.Status(t.Context(), cluster.StatusRequest{})
	s.must(err)
	s.must(s.conn.Do(t.Context(), "ZADD", "cronclave:"+facts.Namespace+":lost", now.UnixMilli(), "gone").Err())
	s.shows("/cluster", "3 of 8", `<td class="num wrapless">20.1s of 30s</td>`, `</span> 9.1s of 30s</td>`, `<td class="num wrapless">7</td>`, `<td class="num wrapless">–</td>`,
		`<div class="verdict warn">`, "An embedded server: its limits", "end with it.")
	if body := s.get("/cluster").Body.String(); !strings.Contains(body, "Its registration expired") || strings.Contains(body, "go to the other replicas.") { // the ticks of per_tick = "all" do not
		t.Errorf("the lost replica: %s", body)
	}
	s.shows("/", "replica late renewed the lease of a job with only 9.1s of 30s left")
	st := &cluster.Status{Now: noon}
	st.Redis.Kind, st.Redis.ServerCount = "cluster", 120
	st.Redis.Servers = []cluster.RedisServer{{Address: hostile, State: "away", Fault: hostile}, {Address: "10.0.0.5:6379", State: "up", Version: "7.2.4"}}
	part := redisOf(st)
	if part.Kind != "A Redis Cluster" || part.More != 118 || part.Servers[0].Mark != markBad || part.Servers[1].Mark != markOK || strings.ContainsAny(part.Servers[0].Address+part.Servers[0].Fault, "\x1b\u202e") {
		t.Errorf("%+v", part)
	}
}

// TestAuditLogIsShown: each act with its user and reason, the newest first, and all of them on a page of their own.
func TestAuditLogIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	s.shows("/cluster", "No user has acted on this cluster.")
	for _, act := range []struct {
		path string
		form url.Values
	}{
		{"/jobs/report/cancel", url.Values{"run": {"run-0"}, "reason": {"it hangs"}}},
		{"/pause", url.Values{"job": {"report", "backup"}, "for": {"2h"}, "reason": {hostile[:20]}}},
		{"/jobs/hot/pause", url.Values{"reason": {"too hot"}}},
		{"/jobs/hot/resume", url.Values{"reason": {"cool again"}}},
		{"/resume", url.Values{"job": {"child"}, "reason": {"all of them"}}},
	} {
		if w := s.post(act.path, act.form); w.Code != 303 {
			t.Errorf("%s: %d %s", act.path, w.Code, w.Body)
		}
	}
	s.shows("/cluster", "<b>alice</b>", "cancel", "it hangs", `href="/jobs/report/runs/run-0"`, "until 2", "&lt;script&gt;", "too hot", "cool again", "all of them", "changed nothing")
	s.shows("/jobs/report", ", by alice: &lt;script&gt;")
	s.shows("/?q=rep", "by alice: &lt;script&gt;")
	if body := s.get("/cluster").Body.String(); strings.Contains(body, "All acts") {
		t.Error("5 acts are not more than the page shows")
	}
	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprint("job", i))
	}
	for range actsOfAPage {
		_, err := s.journal.Audit(t.Context(), journal.Act{By: "bob", Kind: journal.ActPause, Jobs: many}, 0)
		s.must(err)
	}
	s.shows("/cluster", `<a href="/audit">All acts</a>`, "and 25 more")
	s.shows("/audit", "<b>bob</b>", `<a href="/audit?page=2">2</a>`)
	s.shows("/audit?page=2", "<b>alice</b>", "it hangs")
	s.shows("/audit?page=999", "<b>alice</b>")
	if w := s.post("/jobs/report/pause", url.Values{"reason": {strings.Repeat("x", 201)}}); w.Code != 400 || !strings.Contains(w.Body.String(), "201 characters") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestEveryActAsksForAReason: each form that acts has a field for it, and names the user; users can log out unless they are anonymous.
func TestEveryActAsksForAReason(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.fill()
	s.must(redirected(s.post("/jobs/backup/pause", nil).Code))
	for path, forms := range map[string]int{"/jobs/report": 3, "/jobs/backup": 2, "/jobs/off": 1, "/jobs/report/runs/run-0": 1, "/pause": 1, "/resume": 1} {
		body := s.get(path).Body.String()
		acts, reasons := strings.Count(body, `method="post"`)-1, strings.Count(body, `name="reason" maxlength="200"`)
		if acts != forms || reasons != forms || strings.Count(body, `action="/logout"`) != 1 || strings.Count(body, `<input type="hidden" name="user" value="alice" />`) != forms+1 {
			t.Errorf("%s: %d forms with %d reasons, want %d", path, acts, reasons, forms)
		}
	}
	s.mayAct = false
	s.shows("/", "alice may look only", "<span>alice</span>", `action="/logout"`)
	s.name = ""
	s.shows("/", "View only: acting needs users, by token_file or oidc")
	if body := s.get("/").Body.String(); strings.Contains(body, "logout") {
		t.Error("a client that has not logged in can log out")
	}
}

func redirected(code int) error {
	if code != 303 {
		return fmt.Errorf("answered %d, want 303", code)
	}
	return nil
}

// TestLate: a job is late whose run began long after its tick by the schedule, that missed it, or that waits for a pool.
func TestLate(t *testing.T) {
	t.Parallel()
	tick := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	ran := func(after time.Duration, change func(*journal.Record)) *journal.Record {
		r := &journal.Record{Tick: tick, Started: tick.Add(after), Trigger: "schedule", Attempt: 1, Outcome: journal.OutcomeOK}
		if change != nil {
			change(r)
		}
		return r
	}
	missed := &journal.Record{Tick: tick, Outcome: journal.OutcomeMissed}
	st := &cluster.Status{Problems: []cluster.Problem{{Job: "missed"}}, Pools: []cluster.Pool{{Lock: cluster.Lock{Name: "p", Waiting: []cluster.Waiter{{Job: "waits"}, {Owner: "shell"}}}}},
		Jobs: []cluster.Job{{Name: "late", Last: ran(90*time.Second, nil)}, {Name: "prompt", Last: ran(time.Second, nil)}, {Name: "never"}, {Name: "missed", Last: missed, LastEnd: missed},
			{Name: "jittered", JitterMS: 120_000, Last: ran(90*time.Second, nil)}, {Name: "chained", After: []string{"late"}, Last: ran(90*time.Second, nil)},
			{Name: "recovered", Last: ran(time.Hour, func(r *journal.Record) { r.Attempt = 2 })}, {Name: "retried", Last: ran(time.Hour, func(r *journal.Record) { r.FailedTries = 1 })},
			{Name: "manual", Last: ran(time.Hour, func(r *journal.Record) { r.Trigger = "manual" })}, {Name: "mended", Last: ran(0, nil), LastEnd: missed}}}
	if got, want := fmt.Sprint(lateJobs(st)), "map[late:began 1m after its tick missed:missed its tick waits:waits for pool p]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestNoMajorityOfConfigurations: where no configuration is that of most replicas, all are marked.
func TestNoMajorityOfConfigurations(t *testing.T) {
	t.Parallel()
	for digests, want := range map[string]string{"a": "", "aa": "", "ab": "ab", "aab": "b", "aabb": "aabb", "aabc": "aabc", "aaabc": "bc"} {
		st := &cluster.Status{Now: noon}
		for i, d := range strings.Split(digests, "") {
			st.Replicas = append(st.Replicas, cluster.Replica{Name: fmt.Sprint("r", i), ConfigDigest: d})
		}
		var marked string
		for _, r := range clusterOf(st, time.Millisecond).Replicas {
			if r.Differs {
				marked += r.Digest
			}
		}
		if marked != want {
			t.Errorf("of %q %q are marked, want %q", digests, marked, want)
		}
	}
}
