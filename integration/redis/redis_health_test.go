package redis

import (
	"slices"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// A replica whose URL is of another kind than its server refuses with 1 and says what to write.
func TestRedisOfAnotherKind(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s, k := harness.StartTrio(t, nil), harness.StartCluster(t)
	sentinel, node, plain := s.Sentinels[0].Instance.Addr(), k.Nodes[0].Instance.Addr(), s.Servers[0].Instance.Addr()
	for name, tc := range map[string]struct{ url, want string }{
		"redis:// to a node of a Cluster":    {"redis://" + node, "write redis-cluster://"},
		"redis:// to a Sentinel":             {"redis://" + sentinel, "write redis-sentinel://"},
		"redis:// to a replica":              {"redis://" + s.Servers[1].Instance.Addr(), "name the master"},
		"redis-cluster:// to a plain server": {"redis-cluster://" + plain, "it is no Cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			c := harness.NewClusterAt(t, tc.url, harness.OneJob)
			r := c.Start(t, "r1")
			if code := r.Wait(t, harness.Soon); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			if said := strings.Join(r.Log(), "\n"); !strings.Contains(said, tc.want) || !strings.Contains(said, "this Redis can't coordinate") {
				t.Errorf("the replica says nothing of %q:\n%s", tc.want, said)
			}
		})
	}
	t.Run("an unknown master", func(t *testing.T) {
		c := harness.NewClusterAt(t, strings.Replace(s.URL, harness.MasterName, "nobody", 1), harness.OneJob)
		c.Command(t, "status").Want(t, 69, "the Sentinels know no master named nobody")
	})
	t.Run("warnings tell where", func(t *testing.T) {
		harness.Must(t, k.Nodes[1].Client.ConfigSet(t.Context(), "appendonly", "no").Err())
		c := harness.NewClusterAt(t, k.URL, harness.OneJob)
		r := c.Start(t, "r1")
		c.AwaitTick(t, harness.Soon, "quick", 0)
		wantWarning(t, c, "no_persistence", "(at "+k.Nodes[1].Instance.Addr()+")")
		r.Kill(t)
	})
	t.Run("fewer replicas than must acknowledge", func(t *testing.T) {
		c := harness.NewClusterAt(t, s.URL, "[redis]\nacked_replicas = 3\n"+harness.OneJob)
		r := c.Start(t, "r1")
		r.WaitLog(t, harness.Soon, "warning", func(e harness.LogEntry) bool { return e["code"] == "acked_replicas" })
		r.WaitLog(t, harness.Soon, "word that nothing is acknowledged", harness.MessageHas("due ticks wait"))
		wantWarning(t, c, "acked_replicas", "has 2 of its own replicas")
		if runs := c.Lines(t, ""); len(runs) > 0 {
			t.Errorf("a job ran:\n%s", harness.TextOf(runs))
		}
		r.Kill(t)
	})
}

// wantWarning demands a warning of status.
func wantWarning(t *testing.T, c *harness.Cluster, code, says string) {
	t.Helper()
	warnings := c.Status(t).Warnings
	for _, w := range warnings {
		if w.Code == code && strings.Contains(w.Message, says) {
			return
		}
	}
	t.Errorf("no warning %s that says %q: %+v", code, says, warnings)
}

// known reports whether a count is known and at least so great.
func known(n *int64, least int64) bool { return n != nil && *n >= least }

// A status has the state of a single server, the load of the replica, and the least margin of its leases: a leader renews one every 5s.
func TestStatusShowsRedisAndLoad(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := harness.StartRedis(t, harness.RedisOpts{Persist: true, Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "noeviction"}})
	c := harness.NewClusterOn(t, server, "[replica]\nmax_running = 8\n"+harness.OneJob)
	r := c.Start(t, "r1")
	var st harness.ClusterStatus
	harness.Eventually(t, harness.Soon, "a renewal in status", func() bool {
		st = c.Status(t)
		return len(st.Replicas) == 1 && st.Replicas[0].LeaseMargin != nil
	})
	if e := st.Replicas[0]; e.MaxRunning != 8 || e.LeaseMargin.LeaseMS < 15_000 || e.LeaseMargin.LeftMS <= 0 || e.LeaseMargin.LeftMS >= e.LeaseMargin.LeaseMS {
		t.Errorf("%d of %d runs, margin %+v", e.Running, e.MaxRunning, *e.LeaseMargin)
	}
	if st.Redis.Kind != "single" || st.Redis.ServerCount != 1 || len(st.Redis.Servers) != 1 {
		t.Fatalf("%+v", st.Redis)
	}
	s := st.Redis.Servers[0]
	version := strings.TrimPrefix(harness.Must1(harness.ReadEngine(t.Context(), server.Instance.Addr()))(t), "redis ")
	if s.State != "up" || s.Keeps != "all" || s.Version != version || s.Persistence != "appendonly" || !known(s.UptimeS, 0) || !known(s.MemoryUsed, 1) || !known(s.MemoryLimit, 100<<20) ||
		!known(s.Clients, 1) || !known(s.Replicas, 0) || s.RoundTripMS == nil || *s.RoundTripMS <= 0 {
		t.Errorf("%+v", s)
	}
	st.WantLimits(t, []string{"knows of no failover"}, []string{"appendonly", "acked_replicas"})
	c.Command(t, "status", "-o", "wide").Want(t, 0, "LEASE MARGIN")
	c.Command(t, "status", "-o", "wide").Want(t, 0, "limits of this Redis (single)")
	harness.StopAll(t, []*harness.Replica{r})
}

// A registration that is gone from a Redis that evicts is no loss of data, also where it became one that evicts while the replica was up.
func TestEvictedRegistrationIsReportedAsSuch(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewClusterOn(t, harness.StartRedis(t, harness.RedisOpts{Persist: true}), harness.OneJob)
	r := c.Start(t, "r1")
	registrations := func() []string { return c.Client.Keys(t.Context(), "cronclave:it:replica:*").Val() }
	harness.Eventually(t, harness.Soon, "registration", func() bool { return len(registrations()) == 1 })
	for setting, value := range map[string]string{"maxmemory": "100mb", "maxmemory-policy": "volatile-lru"} {
		if err := c.Client.ConfigSet(t.Context(), setting, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Client.Del(t.Context(), registrations()...).Err(); err != nil {
		t.Fatal(err)
	}
	r.WaitLog(t, harness.Soon, "warning of the eviction", harness.MessageHas("evicts keys that expire"))
	harness.Eventually(t, harness.Soon, "registration again", func() bool { return len(registrations()) == 1 })
	c.Command(t, "status").Want(t, 0, "volatile-lru")
	if slices.ContainsFunc(r.LogEntries(), harness.MessageHas("Redis lost its data")) {
		t.Error("an evicted registration was reported as lost data")
	}
	harness.StopAll(t, []*harness.Replica{r})
}

// A user without INFO, or without CONFIG, gets the other facts, and no error. INFO has all that matters of a server with an append-only file.
func TestHiddenRedisIsShown(t *testing.T) {
	t.Parallel()
	c := harness.NewClusterOn(t, harness.StartRedis(t, harness.RedisOpts{Persist: true}), harness.OneJob)
	for rights, want := range map[string]harness.RedisHealth{
		"+@all -info":       {State: "up"},
		"+@all -config|get": {State: "up", Persistence: "appendonly"},
	} {
		u := newUser(t, c, "hidden")
		u.grant(t, "hidden ~* &* "+rights)
		st := u.Status(t)
		if len(st.Redis.Servers) != 1 {
			t.Fatalf("%s: %+v", rights, st.Redis)
		}
		if s := st.Redis.Servers[0]; s.State != want.State || s.Persistence != want.Persistence || (s.Version == "") != (want.Persistence == "") || s.Fault != "" {
			t.Errorf("%s: %+v", rights, s)
		}
		hides := false
		for _, w := range st.Warnings {
			hides = hides || w.Code == "settings_hidden"
		}
		if hides != (want.Persistence == "") {
			t.Errorf("%s: %+v", rights, st.Warnings)
		}
	}
}

// A Redis that answers and has no memory left is not shown as one that is well.
func TestFullRedisIsShown(t *testing.T) {
	t.Parallel()
	c := harness.NewClusterOn(t, harness.StartRedis(t, harness.RedisOpts{Args: []string{"--maxmemory", "100kb", "--maxmemory-policy", "noeviction"}}), harness.OneJob)
	if st := c.Status(t); len(st.Redis.Servers) != 1 || st.Redis.Servers[0].State != "read-only" || !strings.Contains(st.Redis.Servers[0].Fault, "memory is full") {
		t.Errorf("%+v", st.Redis)
	}
	wantWarning(t, c, "writes_refused", "memory is full")
}

// Each kind of Redis is shown as what it is, with its masters and its own limits.
func TestKindsOfRedisAreShown(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	t.Run("sentinel", func(t *testing.T) {
		trio := harness.StartTrio(t, nil)
		st := harness.NewClusterAt(t, trio.URL, harness.OneJob).Status(t)
		if st.Redis.Kind != "sentinel" || len(st.Redis.Servers) != 1 || !known(st.Redis.Servers[0].Replicas, 2) || st.Redis.Servers[0].Address != trio.Servers[0].Instance.Addr() {
			t.Errorf("%+v", st.Redis)
		}
		st.WantLimits(t, []string{"Set [redis].acked_replicas"}, []string{"knows of no failover", "slot moves"})
	})
	t.Run("cluster", func(t *testing.T) {
		k := harness.StartCluster(t)
		st := harness.NewClusterAt(t, k.URL, harness.OneJob).Status(t)
		if st.Redis.Kind != "cluster" || st.Redis.ServerCount != len(k.Nodes) {
			t.Errorf("%+v", st.Redis)
		}
		for _, n := range k.Nodes {
			if !slices.ContainsFunc(st.Redis.Servers, func(s harness.RedisHealth) bool {
				return s.Address == n.Instance.Addr() && s.State == "up" && s.Version != ""
			}) {
				t.Errorf("%s is not shown: %+v", n.Instance.Addr(), st.Redis.Servers)
			}
		}
		st.WantLimits(t, []string{"slot moves"}, []string{"majority"})
	})
	t.Run("quorum", func(t *testing.T) {
		c, servers := harness.NewQuorumCluster(t, harness.OneJob)
		r := c.Start(t, "r1")
		harness.AwaitVotes(t, servers)
		servers[1].Kill()
		st := c.Status(t)
		if st.Redis.Kind != "quorum" || st.Redis.ServerCount != 1+len(servers) || st.Redis.Servers[0].Keeps != "history" {
			t.Fatalf("%+v", st.Redis)
		}
		for i, s := range st.Redis.Servers[1:] {
			state := "up"
			if i == 1 {
				state = "away"
			}
			if s.Keeps != "locks" || s.State != state || (s.Fault != "") != (state == "away") || !strings.Contains(s.Address, servers[i].Instance.Addr()) {
				t.Errorf("master %d: %+v", i, s)
			}
		}
		st.WantLimits(t, []string{"Waiting for a lock or a pool is not fair", "history"}, []string{"failover"})
		r.Kill(t)
	})
}
