package embedded

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"net"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A client of a view reads, executes the scripts of the view, and is permitted some commands; others are refused as a missing right, and change nothing.
func TestView(t *testing.T) {
	const look = "redis.call('TIME') return redis.call('GET', KEYS[1])"
	sum := sha1.Sum([]byte(look)) //nolint:gosec // Redis names scripts by it
	sha := hex.EncodeToString(sum[:])
	s := start(t, Config{DialOnly: true})
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s.ServeView(View{Listener: listener, Reads: []string{"GET", "PING", "TIME", "INFO", "ZRANGE", "XRANGE", "SELECT", "HELLO", "CLIENT"}, Scripts: map[string]string{sha: look},
		Hides:   func(key string) bool { return key == "hidden" },
		Permits: func(cmd string, args []string) bool { return cmd == "SET" && args[0] == "open" }})
	owner := inMemory(t, s)
	must[string](t)(owner.Set(background, "k", "v", 0).Result())
	viewer := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, MaxRetries: -1})
	defer viewer.Close()

	for _, reads := range [][]any{
		{"GET", "k"}, {"PING"}, {"TIME"}, {"INFO", "server"}, {"ZRANGE", "z", 0, -1}, {"XRANGE", "x", "-", "+"}, {"SET", "open", "1"},
		{"EVAL_RO", look, 1, "k"}, {"EVALSHA_RO", sha, 1, "k"}, {"SELECT", 0},
	} {
		if err := viewer.Do(background, reads...).Err(); err != nil && err != redis.Nil {
			t.Errorf("%v: %v", reads, err)
		}
	}
	for _, writes := range [][]any{
		{"SET", "k", "w"}, {"set", "k", "w"}, {"DEL", "k"}, {"FLUSHALL"}, {"EVAL", "return redis.call('DEL', KEYS[1])", 1, "k"}, {"EVALSHA", sha, 1, "k"},
		{"EVAL_RO", "return redis.call('DEL', KEYS[1])", 1, "k"}, {"EVALSHA_RO", "0000000000000000000000000000000000000000", 1, "k"}, {"EVAL_RO"},
		{"SCRIPT", "LOAD", "return 1"}, {"MULTI"}, {"PUBLISH", "c", "m"}, {"SUBSCRIBE", "c"}, {"SWAPDB", 0, 1}, {"RENAME", "k", "l"}, {"NONSENSE"},
		{"KEYS", "*"}, {"GET", "hidden"}, {"EVAL_RO", look, 1, "hidden"}, {"EVALSHA_RO", sha, 1, "hidden"}, {"SELECT", 1}, {"SELECT"}, {"XREAD", "BLOCK", 0, "STREAMS", "x", "0"},
	} {
		if err := viewer.Do(background, writes...).Err(); !redis.IsPermissionError(err) {
			t.Errorf("%v: %v", writes, err)
		}
	}
	if got := must[string](t)(owner.Get(background, "k").Result()); got != "v" {
		t.Errorf("the value is %q", got)
	}
	s.Close()
	if _, err := net.Dial("unix", socket); err == nil {
		t.Error("the view is served after Close")
	}
}

// A view that comes after Close is closed.
func TestViewAfterClose(t *testing.T) {
	s := start(t, Config{DialOnly: true})
	s.Close()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	s.ServeView(View{Listener: listener})
	if _, err := listener.Accept(); err == nil {
		t.Error("its listener is open")
	}
}
