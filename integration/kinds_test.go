package integration

import (
	"strings"
	"testing"
)

// A replica whose URL is of another kind than its server refuses with 1 and says what to write.
func TestRedisOfAnotherKind(t *testing.T) {
	slow(t)
	t.Parallel()
	s, k := startTrio(t, nil), startCluster(t)
	sentinel, node, plain := s.sentinels[0].instance.addr(), k.nodes[0].instance.addr(), s.servers[0].instance.addr()
	for name, tc := range map[string]struct{ url, want string }{
		"redis:// to a node of a Cluster":    {"redis://" + node, "write redis-cluster://"},
		"redis:// to a Sentinel":             {"redis://" + sentinel, "write redis-sentinel://"},
		"redis:// to a replica":              {"redis://" + s.servers[1].instance.addr(), "name the master"},
		"redis-cluster:// to a plain server": {"redis-cluster://" + plain, "it is no Cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClusterAt(t, tc.url, oneJob)
			r := c.start(t, "r1")
			if code := r.Wait(t, soon); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			if said := strings.Join(r.Log(), "\n"); !strings.Contains(said, tc.want) || !strings.Contains(said, "this Redis can't coordinate") {
				t.Errorf("the replica says nothing of %q:\n%s", tc.want, said)
			}
		})
	}
	t.Run("an unknown master", func(t *testing.T) {
		c := newClusterAt(t, strings.Replace(s.URL, masterName, "nobody", 1), oneJob)
		c.command(t, "status").want(t, 69, "the Sentinels know no master named nobody")
	})
	t.Run("warnings tell where", func(t *testing.T) {
		must(t, k.nodes[1].Client.ConfigSet(t.Context(), "appendonly", "no").Err())
		c := newClusterAt(t, k.URL, oneJob)
		r := c.start(t, "r1")
		c.awaitTick(t, soon, "quick", 0)
		wantWarning(t, c, "no_persistence", "(at "+k.nodes[1].instance.addr()+")")
		r.Kill(t)
	})
	t.Run("fewer replicas than must acknowledge", func(t *testing.T) {
		c := newClusterAt(t, s.URL, "[redis]\nacked_replicas = 3\n"+oneJob)
		r := c.start(t, "r1")
		r.WaitLog(t, soon, "warning", func(e logEntry) bool { return e["code"] == "acked_replicas" })
		r.WaitLog(t, soon, "word that nothing is acknowledged", message("due ticks wait"))
		wantWarning(t, c, "acked_replicas", "has 2 of its own replicas")
		if runs := c.lines(t, ""); len(runs) > 0 {
			t.Errorf("a job ran:\n%s", text(runs))
		}
		r.Kill(t)
	})
}

// wantWarning demands a warning of status.
func wantWarning(t *testing.T, c *cluster, code, says string) {
	t.Helper()
	warnings := c.status(t).Warnings
	for _, w := range warnings {
		if w.Code == code && strings.Contains(w.Message, says) {
			return
		}
	}
	t.Errorf("no warning %s that says %q: %+v", code, says, warnings)
}
