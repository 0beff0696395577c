package integration

import (
	"net/http"
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

// awaitPage waits until a page that a replica serves matches.
func (r *replica) awaitPage(t *testing.T, within time.Duration, path, what, pattern string) {
	t.Helper()
	url, match := r.apiURL(t)+path, regexp.MustCompile(pattern)
	eventually(t, within, what+" on the page "+path, func() bool {
		code, page := askAPI(t, "GET", url, "", "")
		return code == http.StatusOK && match.MatchString(page)
	})
}

// A replica that was frozen, a Redis that lost its data, a replica that drains and the end of the last replica are all in the first screen of status,
// with their times; the first two are in the log at WARN, too. All but the last, after which none serves pages, are on the page of another replica.
func TestFaultsAreInTheFirstScreen(t *testing.T) {
	slow(t)
	t.Parallel()
	const frozen = 20
	c := newClusterOn(t, startRedis(t, redisOpts{}), `
server = { listen = "127.0.0.1:0" }
[jobs.long]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 5m'
`)
	replicas := c.startAll(t, 3)
	c.awaitReplicas(t, 3)
	first := c.awaitTick(t, soon, "long", 0)
	busy := named(t, replicas, first.Replica)
	others := slices.DeleteFunc(slices.Clone(replicas), func(r *replica) bool { return r == busy })
	cold, witness := others[0], others[1]

	from := redisTime(t, c.Client).Unix()
	cold.Stop(t)
	c.awaitScreen(t, startTimeout, "the silent replica", `^! replica `+cold.Name+` is silent: .* \(\d+s ago\)$`)
	witness.awaitPage(t, soon, "/", "the silent replica", `replica `+cold.Name+` (is silent|expired)[^\n]*class="since"`)
	c.awaitScreen(t, startTimeout, "the lost replica", `^! the registration of replica `+cold.Name+` expired: .* \(\d+s ago\)$`)
	eventually(t, startTimeout, "time to pass", func() bool { return redisTime(t, c.Client).Unix() >= from+frozen })
	cold.Cont(t)
	e := cold.WaitLog(t, soon, "standstill", message("this replica stood still"))
	if long, err := time.ParseDuration(e["stood_still"].(string)); err != nil || long < (frozen-3)*time.Second || e["since"] == nil || e["level"] != "warn" {
		t.Errorf("%v", e)
	}
	c.awaitScreen(t, soon, "the standstill", `^· replica `+cold.Name+` stood still from 20\S+Z for \S+: .* \(\d+s ago\)$`)

	witness.awaitPage(t, soon, "/", "the standstill", `replica `+cold.Name+` stood still from 20[^\n]*class="since"`)

	must(t, c.Client.FlushAll(t.Context()).Err())
	for _, r := range replicas {
		if e := r.WaitLog(t, soon, "data loss", message("Redis lost its data")); e["level"] != "warn" || e["since"] == nil {
			t.Errorf("%v", e)
		}
	}
	c.awaitScreen(t, soon, "the data loss", `^! Redis lost its data between 20\S+Z and 20\S+Z .* \(\d+s ago\)$`)
	witness.awaitPage(t, soon, "/", "the data loss", `Redis lost its data between 20[^\n]*class="since"`)

	busy.Term(t)
	c.awaitScreen(t, soon, "the replica that drains", `^`+busy.Name+` +draining `)
	witness.awaitPage(t, soon, "/cluster", "the replica that drains", busy.Name+`[^\n]*draining`)
	for _, r := range replicas {
		r.Kill(t)
	}
	c.awaitScreen(t, startTimeout, "that no replica is up", `(?s)\A[^\n]* 0 replicas up, .*\n✗ no replica is up in namespace it: nothing runs since r\d was seen last at 20`)
}
