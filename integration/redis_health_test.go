package integration

import (
	"slices"
	"strings"
	"testing"
)

// limits demands that the status has limits with these texts, and none with the others.
func (s clusterStatus) wantLimits(t *testing.T, with, without []string) {
	t.Helper()
	has := func(text string) bool {
		return slices.ContainsFunc(s.Redis.Limits, func(limit string) bool { return strings.Contains(limit, text) })
	}
	for _, text := range with {
		if !has(text) {
			t.Errorf("no limit says %q: %q", text, s.Redis.Limits)
		}
	}
	for _, text := range without {
		if has(text) {
			t.Errorf("a limit says %q: %q", text, s.Redis.Limits)
		}
	}
}

// known reports whether a count is known and at least so great.
func known(n *int64, least int64) bool { return n != nil && *n >= least }

// A status has the state of a single server, the load of the replica, and the least margin of its leases: a leader renews one every 5s.
func TestStatusShowsRedisAndLoad(t *testing.T) {
	slow(t)
	t.Parallel()
	server := startRedis(t, redisOpts{Persist: true, Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "noeviction"}})
	c := newClusterOn(t, server, "[replica]\nmax_running = 8\n"+oneJob)
	r := c.start(t, "r1")
	var st clusterStatus
	eventually(t, soon, "a renewal in status", func() bool {
		st = c.status(t)
		return len(st.Replicas) == 1 && st.Replicas[0].LeaseMargin != nil
	})
	if e := st.Replicas[0]; e.MaxRunning != 8 || e.LeaseMargin.LeaseMS < 15_000 || e.LeaseMargin.LeftMS <= 0 || e.LeaseMargin.LeftMS >= e.LeaseMargin.LeaseMS {
		t.Errorf("%d of %d runs, margin %+v", e.Running, e.MaxRunning, *e.LeaseMargin)
	}
	if st.Redis.Kind != "single" || st.Redis.ServerCount != 1 || len(st.Redis.Servers) != 1 {
		t.Fatalf("%+v", st.Redis)
	}
	s := st.Redis.Servers[0]
	version := strings.TrimPrefix(must1(readEngine(t.Context(), server.instance.addr()))(t), "redis ")
	if s.State != "up" || s.Keeps != "all" || s.Version != version || s.Persistence != "appendonly" || !known(s.UptimeS, 0) || !known(s.MemoryUsed, 1) || !known(s.MemoryLimit, 100<<20) ||
		!known(s.Clients, 1) || !known(s.Replicas, 0) || s.RoundTripMS == nil || *s.RoundTripMS <= 0 {
		t.Errorf("%+v", s)
	}
	st.wantLimits(t, []string{"knows of no failover"}, []string{"appendonly", "acked_replicas"})
	c.command(t, "status", "-o", "wide").want(t, 0, "LEASE MARGIN")
	c.command(t, "status", "-o", "wide").want(t, 0, "limits of this Redis (single)")
	stopAll(t, []*replica{r})
}

// A registration that is gone from a Redis that evicts is no loss of data, also where it became one that evicts while the replica was up.
func TestEvictedRegistrationIsReportedAsSuch(t *testing.T) {
	t.Parallel()
	c := newClusterOn(t, startRedis(t, redisOpts{Persist: true}), oneJob)
	r := c.start(t, "r1")
	registrations := func() []string { return c.Client.Keys(t.Context(), "cronclave:it:replica:*").Val() }
	eventually(t, soon, "registration", func() bool { return len(registrations()) == 1 })
	for setting, value := range map[string]string{"maxmemory": "100mb", "maxmemory-policy": "volatile-lru"} {
		if err := c.Client.ConfigSet(t.Context(), setting, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Client.Del(t.Context(), registrations()...).Err(); err != nil {
		t.Fatal(err)
	}
	r.WaitLog(t, soon, "warning of the eviction", message("evicts keys that expire"))
	eventually(t, soon, "registration again", func() bool { return len(registrations()) == 1 })
	c.command(t, "status").want(t, 0, "volatile-lru")
	if slices.ContainsFunc(r.LogEntries(), message("Redis lost its data")) {
		t.Error("an evicted registration was reported as lost data")
	}
	stopAll(t, []*replica{r})
}

// A user without INFO, or without CONFIG, gets the other facts, and no error. INFO has all that matters of a server with an append-only file.
func TestHiddenRedisIsShown(t *testing.T) {
	t.Parallel()
	c := newClusterOn(t, startRedis(t, redisOpts{Persist: true}), oneJob)
	for rights, want := range map[string]redisHealth{
		"+@all -info":       {State: "up"},
		"+@all -config|get": {State: "up", Persistence: "appendonly"},
	} {
		u := newUser(t, c, "hidden")
		u.grant(t, "hidden ~* &* "+rights)
		st := u.status(t)
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
	c := newClusterOn(t, startRedis(t, redisOpts{Args: []string{"--maxmemory", "100kb", "--maxmemory-policy", "noeviction"}}), oneJob)
	if st := c.status(t); len(st.Redis.Servers) != 1 || st.Redis.Servers[0].State != "read-only" || !strings.Contains(st.Redis.Servers[0].Fault, "memory is full") {
		t.Errorf("%+v", st.Redis)
	}
	wantWarning(t, c, "writes_refused", "memory is full")
}

// Each kind of Redis is shown as what it is, with its masters and its own limits.
func TestKindsOfRedisAreShown(t *testing.T) {
	t.Parallel()
	t.Run("sentinel", func(t *testing.T) {
		trio := startTrio(t, nil)
		st := newClusterAt(t, trio.URL, oneJob).status(t)
		if st.Redis.Kind != "sentinel" || len(st.Redis.Servers) != 1 || !known(st.Redis.Servers[0].Replicas, 2) || st.Redis.Servers[0].Address != trio.servers[0].instance.addr() {
			t.Errorf("%+v", st.Redis)
		}
		st.wantLimits(t, []string{"Set [redis].acked_replicas"}, []string{"knows of no failover", "slot moves"})
	})
	t.Run("cluster", func(t *testing.T) {
		k := startCluster(t)
		st := newClusterAt(t, k.URL, oneJob).status(t)
		if st.Redis.Kind != "cluster" || st.Redis.ServerCount != len(k.nodes) {
			t.Errorf("%+v", st.Redis)
		}
		for _, n := range k.nodes {
			if !slices.ContainsFunc(st.Redis.Servers, func(s redisHealth) bool { return s.Address == n.instance.addr() && s.State == "up" && s.Version != "" }) {
				t.Errorf("%s is not shown: %+v", n.instance.addr(), st.Redis.Servers)
			}
		}
		st.wantLimits(t, []string{"slot moves"}, []string{"majority"})
	})
	t.Run("quorum", func(t *testing.T) {
		c, servers := newQuorumCluster(t, oneJob)
		r := c.start(t, "r1")
		awaitVotes(t, servers)
		servers[1].Kill()
		st := c.status(t)
		if st.Redis.Kind != "quorum" || st.Redis.ServerCount != 1+len(servers) || st.Redis.Servers[0].Keeps != "history" {
			t.Fatalf("%+v", st.Redis)
		}
		for i, s := range st.Redis.Servers[1:] {
			state := "up"
			if i == 1 {
				state = "away"
			}
			if s.Keeps != "locks" || s.State != state || (s.Fault != "") != (state == "away") || !strings.Contains(s.Address, servers[i].instance.addr()) {
				t.Errorf("master %d: %+v", i, s)
			}
		}
		st.wantLimits(t, []string{"Waiting for a lock or a pool is not fair", "history"}, []string{"failover"})
		r.Kill(t)
	})
}
