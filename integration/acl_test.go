package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
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
	slow(t)
	t.Parallel()
	s := startRedis(t, redisOpts{})
	admin := newClusterOn(t, s, aclJobs)
	worker, viewer := newUser(t, admin, "worker"), newUser(t, admin, "viewer")
	worker.grant(t, printedRights(t, worker, "worker", 0))
	must(t, s.Client.Do(t.Context(), "ACL", "LOG", "RESET").Err()) // the earlier denials
	replicas := worker.startAll(t, 3)
	worker.awaitRun(t, soon, "beat", "end", func(r pastRun) bool { return r.Outcome == "ok" })
	worker.awaitRun(t, soon, "next", "end", func(r pastRun) bool { return r.Outcome == "ok" })
	worker.awaitRun(t, soon, "again", "end of a second try", func(r pastRun) bool { return r.Outcome == "ok" })
	worker.everyCommand(t)
	viewer.look(t)
	stopAll(t, replicas)
	worker.wantNoRefusal(t)
}

// aclUser is a user of the cluster's Redis.
type aclUser struct {
	*cluster
	name string
}

func newUser(t *testing.T, c *cluster, name string) aclUser {
	t.Helper()
	must(t, c.Client.Do(t.Context(), "ACL", "SETUSER", name, "reset", "on", ">secret").Err())
	as := *c
	as.url = strings.Replace(c.url, "redis://", "redis://"+name+":secret@", 1)
	return aclUser{&as, name}
}

// grant gives the user rights, in the words of ACL SETUSER.
func (u aclUser) grant(t *testing.T, rule string) {
	t.Helper()
	words := []any{"ACL", "SETUSER"}
	for _, word := range strings.Fields(rule) {
		words = append(words, word)
	}
	must(t, u.Client.Do(t.Context(), words...).Err())
}

// printedRights are those that a refused status prints in one of its lines.
func printedRights(t *testing.T, u aclUser, name string, n int) string {
	t.Helper()
	refused := u.command(t, "status")
	refused.want(t, 69, "NOPERM")
	var rules []string
	for line := range strings.Lines(refused.stderr) {
		if rule, ok := strings.CutPrefix(line, "  ACL SETUSER "); ok {
			rules = append(rules, rule)
		}
	}
	if len(rules) != 2 || !strings.HasPrefix(rules[n], name+" ") || !strings.Contains(rules[n], "~cronclave:"+u.Namespace+":*") {
		t.Fatalf("status prints the rights %q:\n%s", rules, refused.stderr)
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
		u.command(t, args...).want(t, 0, "")
	}
	u.command(t, "fence", "reports", "6").want(t, 77, "")
	u.command(t, "forget", "other").want(t, 1, "no lost replica")
	u.command(t, "trigger", "long").want(t, 0, "")
	u.awaitRun(t, soon, "long", "start", func(r pastRun) bool { return r.Outcome == "running" })
	u.command(t, "cancel", "long").want(t, 0, "")
	u.awaitRun(t, soon, "long", "cancellation", func(r pastRun) bool { return r.Outcome == "canceled" })
}

// look has a user with the rights to read only.
func (u aclUser) look(t *testing.T) {
	t.Helper()
	u.grant(t, printedRights(t, u, "viewer", 1))
	u.command(t, "status").want(t, 0, "beat")
	u.command(t, "status").want(t, 0, " in a row")
	var st struct {
		Leader   any `json:"leader"`
		Replicas []any
		Jobs     []any
	}
	must(t, json.Unmarshal([]byte(u.command(t, "status", "--json").stdout), &st))
	if st.Leader == nil || len(st.Replicas) != 3 || len(st.Jobs) != 8 {
		t.Errorf("a reader sees %+v", st)
	}
	u.command(t, "history", "beat", "--output").want(t, 0, "    beat")
	u.command(t, "fence", "reports", "9").want(t, 69, "NOPERM")
	u.command(t, "pause", "beat").want(t, 69, "NOPERM")
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
	for _, e := range must1(server.Do(t.Context(), "ACL", "LOG", "100").Slice())(t) {
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
	slow(t)
	t.Parallel()
	rule, ofCluster := documentedRights(t)
	asCron := func(url string) string { return strings.ReplaceAll(url, "://", "://cron:secret@") }
	for name, start := range map[string]func(t *testing.T) (c *cluster, servers []*redisServer, asked int, rule string){
		"Sentinel": func(t *testing.T) (*cluster, []*redisServer, int, string) {
			s := startTrio(t, nil)
			return newClusterAt(t, asCron(s.URL), aclJobs), s.servers, 1, rule // the master; the others are not asked for settings
		},
		"Cluster": func(t *testing.T) (*cluster, []*redisServer, int, string) {
			k := startCluster(t)
			return newClusterAt(t, asCron(k.URL), aclJobs), k.nodes, len(k.nodes), rule + " " + ofCluster
		},
		"quorum": func(t *testing.T) (*cluster, []*redisServer, int, string) {
			servers := []*redisServer{startRedis(t, redisOpts{}), startRedis(t, redisOpts{}), startRedis(t, redisOpts{})}
			history := startRedis(t, redisOpts{})
			table := fmt.Sprintf("[redis]\nurl = %q\nquorum = [\"%s\"]\n", history.URL, strings.Join(urlsOf(servers), `", "`))
			return clusterOn(t, "", history.Client, "it", asCron(table)+aclJobs), append(servers, history), len(servers) + 1, rule
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, servers, asked, rule := start(t)
			for _, s := range servers {
				must(t, s.Client.ConfigSet(t.Context(), "appendonly", "no").Err()) // so that the settings are read
				aclUser{&cluster{Client: s.Client}, "cron"}.grant(t, "cron reset on >secret "+rule)
			}
			replicas := c.startAll(t, 2)
			for _, job := range []string{"beat", "next", "again"} {
				c.awaitRun(t, startTimeout, job, "end", func(r pastRun) bool { return r.Outcome == "ok" })
			}
			for _, args := range [][]string{{"status"}, {"history"}, {"logs", "beat"}, {"pause", "pooled"}, {"resume", "pooled"}, {"trigger", "seldom", "--wait"}, {"lock", "plain", "--", "true"}} {
				c.command(t, args...).want(t, 0, "")
			}
			stopAll(t, replicas)
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
	page := string(must1(os.ReadFile("../docs/access.md"))(t))
	_, rule, _ = strings.Cut(page, "\nACL SETUSER cron ")
	rule, _, found := strings.Cut(rule, "\n")
	_, ofCluster, _ = strings.Cut(page, "- A Redis Cluster also needs `")
	ofCluster, _, also := strings.Cut(ofCluster, "`")
	if !found || !also {
		t.Fatal("docs/access.md has no rules")
	}
	return strings.ReplaceAll(rule, ":default:", ":it:"), ofCluster
}
