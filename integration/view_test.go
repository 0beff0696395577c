package integration

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// told counts the lines of replicas' logs that contain a text.
func told(replicas []*replica, part string) (n int) {
	for _, r := range replicas {
		for _, e := range r.LogEntries() {
			if message(part)(e) {
				n++
			}
		}
	}
	return n
}

// warnings of status with a code.
func (c *cluster) warnings(t *testing.T, code string) (messages []string) {
	t.Helper()
	for _, w := range c.status(t).Warnings {
		if w.Code == code {
			messages = append(messages, w.Message)
		}
	}
	return messages
}

// Jobs whose configuration differs between replicas are named with their forms, in status and in the leader's log
// (P8). The log has it once, and once more when they agree.
// Promise: P8
func TestReplicasThatDisagreeAreNamed(t *testing.T) {
	slow(t)
	t.Parallel()
	const same = `
[jobs.same]
schedule = "* * * * * *"
command = ["true", "an-argument-of-same"]
env = { TOKEN = "${TOKEN_OF_SAME}" }
`
	const before, after = same + "[jobs.edited]\nschedule = \"@daily\"\ncommand = \"true\"\n", same + "[jobs.edited]\nschedule = \"@hourly\"\ncommand = \"true\"\n"
	const token = "a-token-of-the-environment"
	c := newCluster(t, before)
	c.env = append(c.env, "TOKEN_OF_SAME="+token)
	replicas := []*replica{c.start(t, "old")}
	replicas[0].WaitLog(t, soon, "election", message("leadership won"))
	c.edit(t, after)
	replicas = append(replicas, c.start(t, "new"))

	eventually(t, soon, "a warning that names the job and the replicas of each form", func() bool {
		all := strings.Join(c.warnings(t, "config_differs"), "\n")
		return strings.Contains(all, "job edited: new (") && strings.Contains(all, "); old (")
	})
	if all := strings.Join(c.warnings(t, "config_differs"), "\n"); strings.Contains(all, "job same") {
		t.Errorf("they agree on this one:\n%s", all)
	}
	c.wantSettings(t, token)
	eventually(t, soon, "since when they differ", func() bool {
		return slices.ContainsFunc(c.status(t).Problems, func(p problem) bool { return p.Code == "config_differs" && p.Since != nil })
	})
	const differ, agree = "replicas run different configurations", "agree on the configuration again"
	e := replicas[0].WaitLog(t, soon, "word of it", message(differ))
	if where, _ := e["differ"].(string); !strings.Contains(where, "job edited: new (") || strings.Contains(where, "same") {
		t.Errorf("%v", e)
	}
	c.edit(t, after, replicas[0])
	replicas[0].WaitLog(t, soon, "word of agreement", message(agree))
	if all := c.warnings(t, "config_differs"); len(all) > 0 {
		t.Errorf("still: %q", all)
	}
	stopAll(t, replicas)
	if told(replicas, differ) != 1 || told(replicas, agree) != 1 {
		t.Errorf("said %d times, and %d times that it is over", told(replicas, differ), told(replicas, agree))
	}
}

// wantSettings demands that the settings of both jobs are shown, with the replicas of each form, and that neither Redis nor a reader gets the token or an
// argument.
func (c *cluster) wantSettings(t *testing.T, token string) {
	t.Helper()
	var st clusterStatus
	shown := c.command(t, "status", "edited", "--json")
	shown.decode(t, &st)
	s := st.Settings
	if s == nil || s.Agreement != "differ" || !slices.Equal(s.Differing, []string{"schedule"}) || len(s.Forms) != 2 || len(s.Forms[0].Settings) < 40 ||
		!slices.Equal(s.Forms[0].Replicas, []string{"new"}) || s.Forms[0].Settings[0].Value != `"@hourly"` || s.Forms[1].Settings[0].Value != `"@daily"` {
		t.Errorf("%+v", s)
	}
	text := c.command(t, "status", "same")
	text.want(t, 0, "configuration: the same on new, old")
	text.want(t, 0, "TOKEN from the environment")
	c.command(t, "status", "edited").want(t, 0, "! schedule          new: \"@hourly\"\n                    old: \"@daily\"\n")
	hashes := 0
	for keys := c.Client.Scan(t.Context(), 0, "cronclave:"+c.Namespace+":*", 1000).Iterator(); keys.Next(t.Context()); {
		if strings.Contains(keys.Val(), ":settings:") {
			hashes++
		}
		content := c.contentOf(t, keys.Val())
		for _, secret := range []string{token, "an-argument-of-same"} {
			if strings.Contains(content, secret) {
				t.Errorf("Redis has %s in %s", secret, keys.Val())
			}
		}
	}
	for _, secret := range []string{token, "an-argument-of-same"} {
		if strings.Contains(shown.stdout+text.stdout, secret) {
			t.Errorf("%s is shown", secret)
		}
	}
	if hashes != 2 {
		t.Errorf("settings of %d configurations are kept", hashes)
	}
}

// contentOf is what a key has, as text.
func (c *cluster) contentOf(t *testing.T, key string) string {
	t.Helper()
	switch must1(c.Client.Type(t.Context(), key).Result())(t) {
	case "string":
		return c.Client.Get(t.Context(), key).Val() // it may have expired
	case "hash":
		return fmt.Sprint(must1(c.Client.HGetAll(t.Context(), key).Result())(t))
	case "zset":
		return fmt.Sprint(must1(c.Client.ZRange(t.Context(), key, 0, -1).Result())(t))
	case "list":
		return fmt.Sprint(must1(c.Client.LRange(t.Context(), key, 0, -1).Result())(t))
	}
	return ""
}

// The leader sends the heartbeat, and when it is killed the next leader does. A fault is reported without the secret
// in the URL.
func TestLeaderSendsHeartbeats(t *testing.T) {
	slow(t)
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
	c := newCluster(t, oneJob+"\n[heartbeat]\nurl = \"${CRONCLAVE_TEST_HEARTBEAT}\"\nevery = \"1s\"\n")
	c.env = append(c.env, "CRONCLAVE_TEST_HEARTBEAT="+ear.URL+"/s3cr3t")
	leader := c.start(t, "r1")
	leader.WaitLog(t, soon, "election", message("leadership won"))
	heard := func(n int64) {
		t.Helper()
		from := beats.Load()
		eventually(t, startTimeout, "heartbeats", func() bool { return beats.Load() >= from+n })
	}
	heard(3)
	next := c.start(t, "r2")
	next.WaitLog(t, soon, "announcement", announced)
	leader.Kill(t)
	next.WaitLog(t, startTimeout, "election", message("leadership won"))
	heard(3)
	deaf.Store(true)
	eventually(t, soon, "a warning", func() bool {
		all := strings.Join(c.warnings(t, "heartbeat"), "\n")
		return strings.Contains(all, "leader r2: the heartbeat to "+ear.URL+" failed: the answer is 418")
	})
	deaf.Store(false)
	next.WaitLog(t, soon, "word that it is heard", message("heartbeat succeeds again"))
	stopAll(t, []*replica{next})
	if n := told([]*replica{next}, "heartbeat failed"); n != 1 {
		t.Errorf("said %d times", n)
	}
	if said := strings.Join(append(leader.Log(), next.Log()...), "\n"); strings.Contains(said, "s3cr3t") {
		t.Error("the log has the secret")
	}
}
