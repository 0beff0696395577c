package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
		n, err := (&app{redisURL: tc.flag}).nameRedis(tc.redis)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if sent := n.settings.PasswordFile == file; sent != tc.sent || sent == (n.withheld != "") || len(n.settings.Quorum) > 0 {
			t.Errorf("%s: sent %v, want %v; withheld %q; quorum %v", tc.name, sent, tc.sent, n.withheld, n.settings.Quorum)
		}
	}
}

// TestPasswordIsNotSentInTheClear names a server by redis:// that the file names by rediss://. It hears no password, and the user is told why.
func TestPasswordIsNotSentInTheClear(t *testing.T) {
	t.Parallel()
	heard, addr := demandPassword(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "jobs.toml")
	text := "[redis]\nurl = \"rediss://" + addr + "/0\"\npassword_file = \"password\"\n"
	for name, text := range map[string]string{file: text, filepath.Join(dir, "password"): password + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	code := execute(t.Context(), []string{"history", "--config", file, "--redis", "redis://" + addr + "/0"}, streams{out: io.Discard, err: &said})
	if code != exitUnavailable || !strings.Contains(said.String(), "[redis].password_file is for the servers that the file names") {
		t.Errorf("exit code %d, said %s", code, &said)
	}
	if text := heard(); text == "" || strings.Contains(text, password) {
		t.Errorf("the server has heard %q", text)
	}
}

// demandPassword is a server that answers everything with NOAUTH. heard is what it was sent.
func demandPassword(t *testing.T) (heard func() string, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var text strings.Builder
	var serving sync.WaitGroup
	serve := func(conn net.Conn) {
		defer conn.Close()
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			mu.Lock()
			text.Write(buffer[:n])
			mu.Unlock()
			for range bytes.Count(buffer[:n], []byte("*")) { // one for each command
				_, _ = io.WriteString(conn, "-NOAUTH Authentication required.\r\n")
			}
		}
	}
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}, l.Addr().String()
}
