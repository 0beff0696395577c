package redisconn

import (
	"testing"

	"github.com/cronclave/cronclave/internal/config"
)

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
