package web

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// A replica that was frozen, a Redis that lost its data, a replica that drains and the end of the last replica are all in the first screen of status,
// with their times; the first two are in the log at WARN, too. All but the last, after which none serves pages, are on the page of another replica.
func TestFaultsAreInTheFirstScreen(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const frozen = 20
	c := harness.NewClusterOn(t, harness.StartRedis(t, harness.RedisOpts{}), `
server = { listen = "127.0.0.1:0" }
[jobs.long]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 5m'
`)
	replicas := c.StartAll(t, 3)
	c.AwaitReplicas(t, 3)
	first := c.AwaitTick(t, harness.Soon, "long", 0)
	busy := harness.ReplicaNamed(t, replicas, first.Replica)
	others := slices.DeleteFunc(slices.Clone(replicas), func(r *harness.Replica) bool { return r == busy })
	cold, witness := others[0], others[1]

	from := harness.RedisTime(t, c.Client).Unix()
	cold.Stop(t)
	c.AwaitScreen(t, harness.StartTimeout, "the silent replica", `^! replica `+cold.Name+` is silent: .* \(\d+s ago\)$`)
	witness.AwaitPage(t, harness.Soon, "/", "the silent replica", `replica `+cold.Name+` (is silent|expired)[^\n]*class="since"`)
	c.AwaitScreen(t, harness.StartTimeout, "the lost replica", `^! the registration of replica `+cold.Name+` expired: .* \(\d+s ago\)$`)
	harness.Eventually(t, harness.StartTimeout, "time to pass", func() bool { return harness.RedisTime(t, c.Client).Unix() >= from+frozen })
	cold.Cont(t)
	e := cold.WaitLog(t, harness.Soon, "standstill", harness.MessageHas("this replica stood still"))
	if long, err := time.ParseDuration(e["stood_still"].(string)); err != nil || long < (frozen-3)*time.Second || e["since"] == nil || e["level"] != "warn" {
		t.Errorf("%v", e)
	}
	c.AwaitScreen(t, harness.Soon, "the standstill", `^· replica `+cold.Name+` stood still from 20\S+Z for \S+: .* \(\d+s ago\)$`)

	witness.AwaitPage(t, harness.Soon, "/", "the standstill", `replica `+cold.Name+` stood still from 20[^\n]*class="since"`)

	harness.Must(t, c.Client.FlushAll(t.Context()).Err())
	for _, r := range replicas {
		if e := r.WaitLog(t, harness.Soon, "data loss", harness.MessageHas("Redis lost its data")); e["level"] != "warn" || e["since"] == nil {
			t.Errorf("%v", e)
		}
	}
	c.AwaitScreen(t, harness.Soon, "the data loss", `^! Redis lost its data between 20\S+Z and 20\S+Z .* \(\d+s ago\)$`)
	witness.AwaitPage(t, harness.Soon, "/", "the data loss", `Redis lost its data between 20[^\n]*class="since"`)

	busy.Term(t)
	c.AwaitScreen(t, harness.Soon, "the replica that drains", `^`+busy.Name+` +draining `)
	witness.AwaitPage(t, harness.Soon, "/cluster", "the replica that drains", busy.Name+`[^\n]*draining`)
	for _, r := range replicas {
		r.Kill(t)
	}
	c.AwaitScreen(t, harness.StartTimeout, "that no replica is up", `(?s)\A[^\n]* 0 replicas up, .*\n✗ no replica is up in namespace it: nothing runs since r\d was seen last at 20`)
}

// told counts the lines of replicas' logs that contain a text.
func told(replicas []*harness.Replica, part string) (n int) {
	for _, r := range replicas {
		for _, e := range r.LogEntries() {
			if harness.MessageHas(part)(e) {
				n++
			}
		}
	}
	return n
}

// Jobs whose configuration differs between replicas are named with their forms, in status and in the leader's log
// (P8). The log has it once, and once more when they agree.
// Promise: P8
func TestReplicasThatDisagreeAreNamed(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const same = `
[jobs.same]
schedule = "* * * * * *"
command = ["true", "an-argument-of-same"]
env = { TOKEN = "${TOKEN_OF_SAME}" }
`
	const before, after = same + "[jobs.edited]\nschedule = \"@daily\"\ncommand = \"true\"\n", same + "[jobs.edited]\nschedule = \"@hourly\"\ncommand = \"true\"\n"
	const token = "a-token-of-the-environment"
	c := harness.NewCluster(t, before)
	c.Env = append(c.Env, "TOKEN_OF_SAME="+token)
	replicas := []*harness.Replica{c.Start(t, "old")}
	replicas[0].WaitLog(t, harness.Soon, "election", harness.MessageHas("leadership won"))
	c.Edit(t, after)
	replicas = append(replicas, c.Start(t, "new"))

	harness.Eventually(t, harness.Soon, "a warning that names the job and the replicas of each form", func() bool {
		all := strings.Join(c.Warnings(t, "config_differs"), "\n")
		return strings.Contains(all, "job edited: new (") && strings.Contains(all, "); old (")
	})
	if all := strings.Join(c.Warnings(t, "config_differs"), "\n"); strings.Contains(all, "job same") {
		t.Errorf("they agree on this one:\n%s", all)
	}
	c.WantSettings(t, token)
	harness.Eventually(t, harness.Soon, "since when they differ", func() bool {
		return slices.ContainsFunc(c.Status(t).Problems, func(p harness.Problem) bool { return p.Code == "config_differs" && p.Since != nil })
	})
	const differ, agree = "replicas run different configurations", "agree on the configuration again"
	e := replicas[0].WaitLog(t, harness.Soon, "word of it", harness.MessageHas(differ))
	if where, _ := e["differ"].(string); !strings.Contains(where, "job edited: new (") || strings.Contains(where, "same") {
		t.Errorf("%v", e)
	}
	c.Edit(t, after, replicas[0])
	replicas[0].WaitLog(t, harness.Soon, "word of agreement", harness.MessageHas(agree))
	if all := c.Warnings(t, "config_differs"); len(all) > 0 {
		t.Errorf("still: %q", all)
	}
	harness.StopAll(t, replicas)
	if told(replicas, differ) != 1 || told(replicas, agree) != 1 {
		t.Errorf("said %d times, and %d times that it is over", told(replicas, differ), told(replicas, agree))
	}
}

// The leader sends the heartbeat, and when it is killed the next leader does. A fault is reported without the secret
// in the URL.
func TestLeaderSendsHeartbeats(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	var beats atomic.Int64
	var deaf atomic.Bool
	ear := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/s3cr3t" {
			t.Errorf("asked for %s", r.URL)
		}
		if deaf.Load() {
			w.WriteHeader(http.StatusTeapot)
		}
		beats.Add(1)
	}))
	defer ear.Close()
	c := harness.NewCluster(t, harness.OneJob+"\n[heartbeat]\nurl = \"${CRONCLAVE_TEST_HEARTBEAT}\"\nevery = \"1s\"\n")
	c.Env = append(c.Env, "CRONCLAVE_TEST_HEARTBEAT="+ear.URL+"/s3cr3t")
	leader := c.Start(t, "r1")
	leader.WaitLog(t, harness.Soon, "election", harness.MessageHas("leadership won"))
	heard := func(n int64) {
		t.Helper()
		from := beats.Load()
		harness.Eventually(t, harness.StartTimeout, "heartbeats", func() bool { return beats.Load() >= from+n })
	}
	heard(3)
	next := c.Start(t, "r2")
	next.WaitLog(t, harness.Soon, "announcement", harness.Announced)
	leader.Kill(t)
	next.WaitLog(t, harness.StartTimeout, "election", harness.MessageHas("leadership won"))
	heard(3)
	deaf.Store(true)
	harness.Eventually(t, harness.Soon, "a warning", func() bool {
		all := strings.Join(c.Warnings(t, "heartbeat"), "\n")
		return strings.Contains(all, "leader r2: the heartbeat to "+ear.URL+" failed: the answer is 418")
	})
	deaf.Store(false)
	next.WaitLog(t, harness.Soon, "word that it is heard", harness.MessageHas("heartbeat succeeds again"))
	harness.StopAll(t, []*harness.Replica{next})
	if n := told([]*harness.Replica{next}, "heartbeat failed"); n != 1 {
		t.Errorf("said %d times", n)
	}
	if said := strings.Join(append(leader.Log(), next.Log()...), "\n"); strings.Contains(said, "s3cr3t") {
		t.Error("the log has the secret")
	}
}
