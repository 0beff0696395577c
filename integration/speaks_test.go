package integration

import (
	"regexp"
	"slices"
	"testing"
	"time"
)

// awaitScreen waits until the text of status matches.
func (c *cluster) awaitScreen(t *testing.T, within time.Duration, what, pattern string) {
	t.Helper()
	match := regexp.MustCompile("(?m)" + pattern)
	eventually(t, within, what+" in the text of status", func() bool { return match.MatchString(c.command(t, "status", "-o", "wide").stdout) })
}

// A replica that was frozen, a Redis that lost its data, a replica that drains and the end of the last replica are all in the first screen of status,
// with their times; the first two are in the log at WARN, too.
func TestFaultsAreInTheFirstScreen(t *testing.T) {
	t.Parallel()
	const frozen = 20
	c := newClusterOn(t, startRedis(t, redisOpts{}), `
[jobs.long]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 5m'
`)
	replicas := c.startAll(t, 3)
	c.awaitReplicas(t, 3)
	first := c.awaitTick(t, soon, "long", 0)
	busy := named(t, replicas, first.Replica)
	others := slices.DeleteFunc(slices.Clone(replicas), func(r *replica) bool { return r == busy })
	cold := others[0]

	from := redisTime(t, c.Client).Unix()
	cold.Stop(t)
	c.awaitScreen(t, startTimeout, "the silent replica", `^! replica `+cold.Name+` is silent: .* \(\d+s ago\)$`)
	c.awaitScreen(t, startTimeout, "the lost replica", `^· the registration of replica `+cold.Name+` expired: .* \(\d+s ago\)$`)
	eventually(t, startTimeout, "time to pass", func() bool { return redisTime(t, c.Client).Unix() >= from+frozen })
	cold.Cont(t)
	e := cold.WaitLog(t, soon, "standstill", message("this replica stood still"))
	if long, err := time.ParseDuration(e["stood_still"].(string)); err != nil || long < (frozen-3)*time.Second || e["since"] == nil || e["level"] != "warn" {
		t.Errorf("%v", e)
	}
	c.awaitScreen(t, soon, "the standstill", `^· replica `+cold.Name+` stood still from 20\S+Z for \S+: .* \(\d+s ago\)$`)

	must(t, c.Client.FlushAll(t.Context()).Err())
	for _, r := range replicas {
		if e := r.WaitLog(t, soon, "data loss", message("Redis lost its data")); e["level"] != "warn" || e["since"] == nil {
			t.Errorf("%v", e)
		}
	}
	c.awaitScreen(t, soon, "the data loss", `^! Redis lost its data between 20\S+Z and 20\S+Z .* \(\d+s ago\)$`)

	busy.Term(t)
	c.awaitScreen(t, soon, "the replica that drains", `^`+busy.Name+` +draining `)
	for _, r := range replicas {
		r.Kill(t)
	}
	c.awaitScreen(t, startTimeout, "that no replica is up", `\A.* 0 replicas up, .*\n\n✗ no replica is up in namespace it: nothing runs since r\d was seen last at 20`)
}
