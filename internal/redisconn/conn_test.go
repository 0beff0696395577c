package redisconn

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
)

const password = "hush-hush"

// repeatCommands has a server that knows neither AUTH nor HELLO, and repeats what it was sent, as Redis does.
func repeatCommands(s *miniredis.Miniredis) {
	s.Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
		if cmd != "AUTH" && cmd != "HELLO" {
			return false
		}
		p.WriteError("ERR unknown command '" + cmd + "', with args beginning with: '" + strings.Join(args, "' '") + "'")
		return true
	})
}

func openURL(url string, quorum ...string) (*Conn, error) {
	s, err := Named{File: config.Redis{URL: url, Quorum: quorum}}.Find()
	if err != nil {
		return nil, err
	}
	return Open(s)
}

// TestPasswordIsNotRepeated looks at all the ways in which an error can come back.
func TestPasswordIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := miniredis.RunT(t)
	repeatCommands(s)
	rdb, err := openURL("redis://:" + password + "@" + s.Addr() + "/0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	single := rdb.Get(t.Context(), "k").Err()
	cmds, whole := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		return p.Get(t.Context(), "k").Err()
	})
	for name, err := range map[string]error{"command": single, "pipeline": whole, "command in it": cmds[0].Err()} {
		if err == nil || strings.Contains(err.Error(), password) || !redis.HasErrorPrefix(err, "unknown command") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPasswordIsNotRepeatedByNodes has a node of a Cluster that repeats it; each client of a node is made by that option.
func TestPasswordIsNotRepeatedByNodes(t *testing.T) {
	t.Parallel()
	s := miniredis.RunT(t)
	repeatCommands(s)
	var a access
	a.openDialer(nil)
	defer a.close()
	o := clusterOptions(config.RedisURL{Addrs: []string{s.Addr()}}, a.newConnector(&secrets{password: password}).connect, errorHook{&a.steps})
	node := o.NewClient(&redis.Options{Addr: s.Addr(), Dialer: o.Dialer, MaxRetries: -1})
	defer node.Close()
	if err := node.Ping(t.Context()).Err(); err == nil || strings.Contains(err.Error(), password) {
		t.Errorf("error %v", err)
	}
}

// silentServer accepts connections, and says nothing.
func silentServer(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "redis://" + l.Addr().String() + "/0"
}

func embeddedServer(t *testing.T) (url string) {
	t.Helper()
	s, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.URL()
}

func openQuorum(t *testing.T, history string, quorum ...string) *Conn {
	t.Helper()
	c, err := openURL(history, quorum...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestQuorumIsLookedAtWithoutAHungMinority has one of three masters say nothing.
func TestQuorumIsLookedAtWithoutAHungMinority(t *testing.T) {
	t.Parallel()
	silent := silentServer(t)
	s := openQuorum(t, silent, embeddedServer(t), silent, embeddedServer(t))
	hung := func(w Warning) bool { return w.Code == "quorum" && strings.Contains(w.Message, silent) }

	h, err := s.examineQuorum(t.Context(), hasty)
	i := slices.IndexFunc(h.Warnings, hung)
	if err != nil || i < 0 || !strings.Contains(h.Warnings[i].Message, "no answer yet") {
		t.Errorf("in haste: %v, %v; want no wait for %s", h, err, silent)
	}
	h, err = s.examineQuorum(t.Context(), unhurried)
	i = slices.IndexFunc(h.Warnings, hung)
	if err != nil || i < 0 || !strings.Contains(h.Warnings[i].Message, "first reply of ") {
		t.Errorf("patiently: %v, %v; want %s to have been waited for", h, err, silent)
	}
}

// TestHungMinorityDelaysNoProbe: a replica is asked whether Redis is up while somebody waits, and one of three masters says nothing.
func TestHungMinorityDelaysNoProbe(t *testing.T) {
	t.Parallel()
	c := openQuorum(t, embeddedServer(t), embeddedServer(t), silentServer(t), embeddedServer(t))
	history := openQuorum(t, silentServer(t), embeddedServer(t), embeddedServer(t), embeddedServer(t))
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = c.Examine(t.Context()) // waits for the silent one
	}()
	for range 2 { // which take longer than one patient look if they wait as well
		if err := c.Glance(t.Context()); err != nil {
			t.Errorf("a quorum with a majority of its masters counts as away: %v", err)
		}
		if err := history.GlanceAtLocks(t.Context()); err != nil {
			t.Errorf("a quorum without its history counts as away: %v", err)
		}
	}
	select {
	case <-waited:
		t.Error("an answer took as long as the silent master's time-out")
	default:
	}
	<-waited
	if err := history.Glance(t.Context()); err == nil {
		t.Error("a quorum without its history counts as up, with all that it needs")
	}
}

// TestPasswordOfTheFile has a Redis named outside of the file: its password goes only to servers of the file, and never over a weaker connection.
func TestPasswordOfTheFile(t *testing.T) {
	const file = "/run/secrets/redis"
	secure := &config.TLS{CAFile: "ca.pem"}
	for _, tc := range []struct {
		name  string
		flag  string
		redis config.Redis
		sent  bool
	}{
		{"the same server", "redis://h:1/3", config.Redis{URL: "redis://h:1"}, true},
		{"the same server, by its default port", "redis://h", config.Redis{URL: "redis://h:6379/2"}, true},
		{"another server", "redis://i:1", config.Redis{URL: "redis://h:1"}, false},
		{"another port", "redis://h:2", config.Redis{URL: "redis://h:1"}, false},
		{"in the clear", "redis://h:1", config.Redis{URL: "rediss://h:1"}, false},
		{"in the clear, with settings for TLS", "redis://h:1", config.Redis{URL: "rediss://h:1", TLS: secure}, false},
		{"over TLS as in the file", "rediss://h:1", config.Redis{URL: "rediss://h:1"}, true},
		{"over TLS where the file has none", "rediss://h:1", config.Redis{URL: "redis://h:1"}, true},
		{"one of a quorum", "redis://b:1", config.Redis{URL: "redis://h:1", Quorum: []string{"redis://a:1", "redis://b:1"}}, true},
		{"one of a quorum, in the clear", "redis://b:1", config.Redis{URL: "redis://h:1", Quorum: []string{"rediss://b:1"}}, false},
		{"the master of the same name elsewhere", "redis-sentinel://b/m", config.Redis{URL: "redis-sentinel://a/m"}, false},
		{"the same Sentinels, over TLS by the settings", "redis-sentinel://a/m", config.Redis{URL: "redis-sentinel://a/m", TLS: secure}, true},
		{"one node by itself", "redis://a", config.Redis{URL: "redis-cluster://a"}, false},
		{"the same socket", "unix:///s", config.Redis{URL: "unix:///s"}, true},
		{"another socket", "unix:///t", config.Redis{URL: "unix:///s"}, false},
		{"a file without a server", "redis://h", config.Redis{}, true},
		{"a file without a server, with settings for TLS", "redis://h", config.Redis{TLS: secure}, false},
		{"a file without a server, over TLS", "rediss://h", config.Redis{TLS: secure}, true},
	} {
		tc.redis.PasswordFile = file
		n, err := Named{Flag: tc.flag, File: tc.redis}.Find()
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if sent := n.Settings.PasswordFile == file; sent != tc.sent || sent == (n.withheld != "") || len(n.Settings.Quorum) > 0 {
			t.Errorf("%s: sent %v, want %v; withheld %q; quorum %v", tc.name, sent, tc.sent, n.withheld, n.Settings.Quorum)
		}
	}
}

// The printed rights are those of the documentation.
func TestRightsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		Rights{"cron", "default", config.Single}.All(), Rights{"viewer", "default", config.Single}.ReadOnly(), "`" + clusterCommands + "`",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/access.md lacks %s", want)
		}
	}
	if got := (Rights{"default", "a", config.Cluster}).All(); !strings.HasPrefix(got, "ACL SETUSER default ~cronclave:a:* &cronclave:a:* +ping ") || !strings.HasSuffix(got, clusterCommands) {
		t.Errorf("of a Cluster: %s", got)
	}
}
