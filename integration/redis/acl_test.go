package redis

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

const aclJobs = `
[replica]
drain_timeout = "5s"

[pools.warehouse]
slots = 2

[jobs.beat]
schedule = "* * * * * *"
command = "echo beat; exec \"$SCRIBE\""

[jobs.next]
after = ["beat"]
command = "true"

[jobs.pooled]
schedule = "* * * * * *"
pool = "warehouse"
parallel = 2
per_tick = 2
overlap = "queue"
command = "true"

[jobs.again]
schedule = "*/2 * * * * *"
recover = true
retry = { max = 1, delay = "100ms" }
command = "exit $((2 - CRONCLAVE_ATTEMPT))"

[jobs.long]
schedule = "0 0 1 1 *"
command = "echo begun; exec sleep 60"

[jobs.seldom]
schedule = "0 0 1 1 *"
command = "true"

[jobs.later]
after = ["seldom"]
command = "true"

[jobs.bad]
schedule = "* * * * * *"
command = "false"
`

// A user with exactly the rights that a refused command prints can run everything. The test gives these rights to
// users of a real Redis: three replicas and every command work with the first set, status and history with the
// second, which changes nothing.
func TestPrintedRights(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartRedis(t, harness.RedisOpts{})
	admin := harness.NewClusterOn(t, s, aclJobs)
	worker, viewer := newUser(t, admin, "worker"), newUser(t, admin, "viewer")
	worker.grant(t, printedRights(t, worker, "worker", 0))
	harness.Must(t, s.Client.Do(t.Context(), "ACL", "LOG", "RESET").Err()) // the earlier denials
	replicas := worker.StartAll(t, 3)
	worker.AwaitRun(t, harness.Soon, "beat", "end", func(r harness.PastRun) bool { return r.Outcome == "ok" })
	worker.AwaitRun(t, harness.Soon, "next", "end", func(r harness.PastRun) bool { return r.Outcome == "ok" })
	worker.AwaitRun(t, harness.Soon, "again", "end of a second try", func(r harness.PastRun) bool { return r.Outcome == "ok" })
	worker.everyCommand(t)
	viewer.look(t)
	harness.StopAll(t, replicas)
	worker.wantNoRefusal(t)
}

// aclUser is a user of the cluster's Redis.
type aclUser struct {
	*harness.Cluster
	name string
}

func newUser(t *testing.T, c *harness.Cluster, name string) aclUser {
	t.Helper()
	harness.Must(t, c.Client.Do(t.Context(), "ACL", "SETUSER", name, "reset", "on", ">secret").Err())
	as := *c
	as.URL = strings.Replace(c.URL, "redis://", "redis://"+name+":secret@", 1)
	return aclUser{&as, name}
}

// grant gives the user rights, in the words of ACL SETUSER.
func (u aclUser) grant(t *testing.T, rule string) {
	t.Helper()
	words := []any{"ACL", "SETUSER"}
	for _, word := range strings.Fields(rule) {
		words = append(words, word)
	}
	harness.Must(t, u.Client.Do(t.Context(), words...).Err())
}

// printedRights are those that a refused status prints in one of its lines.
func printedRights(t *testing.T, u aclUser, name string, n int) string {
	t.Helper()
	refused := u.Command(t, "status")
	refused.Want(t, 69, "NOPERM")
	var rules []string
	for line := range strings.Lines(refused.Stderr) {
		if rule, ok := strings.CutPrefix(line, "  ACL SETUSER "); ok {
			rules = append(rules, rule)
		}
	}
	if len(rules) != 2 || !strings.HasPrefix(rules[n], name+" ") || !strings.Contains(rules[n], "~cronclave:"+u.Namespace+":*") {
		t.Fatalf("status prints the rights %q:\n%s", rules, refused.Stderr)
	}
	return rules[n]
}

// everyCommand runs each command that talks to Redis.
func (u aclUser) everyCommand(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"status"}, {"status", "--json"}, {"history"}, {"history", "beat", "--output"}, {"logs", "beat"}, {"next", "-n", "1"},
		{"pause", "pooled", "--for", "1h"}, {"resume", "pooled"}, {"trigger", "seldom", "--wait"}, {"exec", "later"}, // of which no tick holds the slot
		{"lock", "plain", "--", "sleep", "1.3"} /* which status shows */, {"lock", "fair", "--fair", "--wait", "5s", "--", "true"}, {"lock", "slots", "--slots", "3", "--", "true"},
		{"lock", "--pool", "warehouse", "--wait", "1m", "--", "true"}, {"fence", "reports", "7"}, {"fence", "reports", "8"},
	} {
		u.Command(t, args...).Want(t, 0, "")
	}
	u.Command(t, "fence", "reports", "6").Want(t, 77, "")
	u.Command(t, "forget", "other").Want(t, 1, "no lost replica")
	u.Command(t, "trigger", "long").Want(t, 0, "")
	u.AwaitRun(t, harness.Soon, "long", "start", func(r harness.PastRun) bool { return r.Outcome == "running" })
	u.Command(t, "cancel", "long").Want(t, 0, "")
	u.AwaitRun(t, harness.Soon, "long", "cancellation", func(r harness.PastRun) bool { return r.Outcome == "canceled" })
}

// look has a user with the rights to read only.
func (u aclUser) look(t *testing.T) {
	t.Helper()
	u.grant(t, printedRights(t, u, "viewer", 1))
	u.Command(t, "status").Want(t, 0, "beat")
	u.Command(t, "status").Want(t, 0, " in a row")
	var st struct {
		Leader   any `json:"leader"`
		Replicas []any
		Jobs     []any
	}
	harness.Must(t, json.Unmarshal([]byte(u.Command(t, "status", "--json").Stdout), &st))
	if st.Leader == nil || len(st.Replicas) != 3 || len(st.Jobs) != 8 {
		t.Errorf("a reader sees %+v", st)
	}
	u.Command(t, "history", "beat", "--output").Want(t, 0, "    beat")
	u.Command(t, "fence", "reports", "9").Want(t, 69, "NOPERM")
	u.Command(t, "pause", "beat").Want(t, 69, "NOPERM")
	reader := redis.NewClient(&redis.Options{Addr: u.Client.Options().Addr, Username: u.name, Password: "secret"})
	defer reader.Close()
	for _, words := range [][]any{
		{"set", "cronclave:" + u.Namespace + ":x", "1"}, {"get", "cronclave:other:x"}, {"keys", "*"},
		{"eval_ro", "return redis.call('SET', KEYS[1], '1')", 1, "cronclave:" + u.Namespace + ":x"},
	} {
		if err := reader.Do(t.Context(), words...).Err(); err == nil || err == redis.Nil { //nolint:errorlint // as it comes
			t.Errorf("a reader may do %v", words)
		}
	}
}

// wantNoRefusal demands that Redis has refused the user nothing since he has his rights, except for the reading of settings, as docs/access.md announces. That
// one is there, which shows that the log of this engine is understood.
func (u aclUser) wantNoRefusal(t *testing.T) {
	t.Helper()
	if wantNoRefusal(t, u.name, u.Client) == 0 {
		t.Error("CONFIG GET is not in the log")
	}
}

// wantNoRefusal demands the same of a server that may not have been asked for its settings, and returns the number of these announced refusals.
func wantNoRefusal(t *testing.T, user string, server *redis.Client) (announced int) {
	t.Helper()
	for _, fields := range refusals(t, server) {
		switch {
		case fields["username"] != user:
		case fields["object"] == "config|get":
			announced++
		default:
			t.Errorf("refused: %v", fields)
		}
	}
	return announced
}

// refusals returns the entries of a server's ACL log.
func refusals(t *testing.T, server *redis.Client) (all []map[string]string) {
	t.Helper()
	for _, e := range harness.Must1(server.Do(t.Context(), "ACL", "LOG", "100").Slice())(t) {
		fields := map[string]string{}
		switch e := e.(type) {
		case map[any]any:
			for name, value := range e {
				fields[fmt.Sprint(name)] = fmt.Sprint(value)
			}
		case []any:
			for i := 0; i+1 < len(e); i += 2 {
				fields[fmt.Sprint(e[i])] = fmt.Sprint(e[i+1])
			}
		}
		all = append(all, fields)
	}
	return all
}

// The documented rights are enough on Sentinel, a Cluster and a quorum as well, and no server refuses anything. Sentinels themselves have no users here.
func TestRightsOnOtherServers(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	rule, ofCluster := documentedRights(t)
	asCron := func(url string) string { return strings.ReplaceAll(url, "://", "://cron:secret@") }
	for name, start := range map[string]func(t *testing.T) (c *harness.Cluster, servers []*harness.RedisServer, asked int, rule string){
		"Sentinel": func(t *testing.T) (*harness.Cluster, []*harness.RedisServer, int, string) {
			s := harness.StartTrio(t, nil)
			return harness.NewClusterAt(t, asCron(s.URL), aclJobs), s.Servers, 1, rule // the master; the others are not asked for settings
		},
		"Cluster": func(t *testing.T) (*harness.Cluster, []*harness.RedisServer, int, string) {
			k := harness.StartCluster(t)
			return harness.NewClusterAt(t, asCron(k.URL), aclJobs), k.Nodes, len(k.Nodes), rule + " " + ofCluster
		},
		"quorum": func(t *testing.T) (*harness.Cluster, []*harness.RedisServer, int, string) {
			servers := []*harness.RedisServer{harness.StartRedis(t, harness.RedisOpts{}), harness.StartRedis(t, harness.RedisOpts{}), harness.StartRedis(t, harness.RedisOpts{})}
			history := harness.StartRedis(t, harness.RedisOpts{})
			table := fmt.Sprintf("[redis]\nurl = %q\nquorum = [\"%s\"]\n", history.URL, strings.Join(harness.UrlsOf(servers), `", "`))
			return harness.ClusterOn(t, "", history.Client, "it", asCron(table)+aclJobs), append(servers, history), len(servers) + 1, rule
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, servers, asked, rule := start(t)
			for _, s := range servers {
				harness.Must(t, s.Client.ConfigSet(t.Context(), "appendonly", "no").Err()) // so that the settings are read
				aclUser{&harness.Cluster{Client: s.Client}, "cron"}.grant(t, "cron reset on >secret "+rule)
			}
			replicas := c.StartAll(t, 2)
			for _, job := range []string{"beat", "next", "again"} {
				c.AwaitRun(t, harness.StartTimeout, job, "end", func(r harness.PastRun) bool { return r.Outcome == "ok" })
			}
			for _, args := range [][]string{{"status"}, {"history"}, {"logs", "beat"}, {"pause", "pooled"}, {"resume", "pooled"}, {"trigger", "seldom", "--wait"}, {"lock", "plain", "--", "true"}} {
				c.Command(t, args...).Want(t, 0, "")
			}
			harness.StopAll(t, replicas)
			for i, s := range servers {
				if announced := wantNoRefusal(t, "cron", s.Client); i < asked && announced == 0 {
					t.Errorf("CONFIG GET is not in the log of %s", s.URL)
				}
			}
		})
	}
}

// documentedRights are the rules of docs/access.md for replicas, and what a Cluster needs besides.
func documentedRights(t *testing.T) (rule, ofCluster string) {
	t.Helper()
	page := string(harness.Must1(os.ReadFile(harness.Root + "/docs/access.md"))(t))
	_, rule, _ = strings.Cut(page, "\nACL SETUSER cron ")
	rule, _, found := strings.Cut(rule, "\n")
	_, ofCluster, _ = strings.Cut(page, "- A Redis Cluster also needs `")
	ofCluster, _, also := strings.Cut(ofCluster, "`")
	if !found || !also {
		t.Fatal("docs/access.md has no rules")
	}
	return strings.ReplaceAll(rule, ":default:", ":it:"), ofCluster
}
