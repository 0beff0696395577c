package redisconn

import (
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
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
