package embedded

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns a server that ends with the test.
func start(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// overTCP and inMemory are the two ways of a client to a server.
func overTCP(t testing.TB, s *Server) *redis.Client {
	return connect(t, &redis.Options{Addr: s.Addr()})
}

func inMemory(t testing.TB, s *Server) *redis.Client {
	return connect(t, &redis.Options{Addr: s.Addr(), Dialer: s.Dial})
}

func connect(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	o.ContextTimeoutEnabled = true
	o.DialerRetries = 1
	o.MaxRetries = -1
	o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute // the machine may be slow
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// must fails the test on an error that is not one of a missing value.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// pass lets fake time pass.
func pass(d time.Duration) { <-time.After(d) }

var background = context.Background()

func TestServesOnTCP(t *testing.T) {
	s := start(t, Config{})
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil || host != "127.0.0.1" || port == "0" {
		t.Fatalf("Addr() = %q, %v", s.Addr(), err)
	}
	o, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if got := must[string](t)(connect(t, o).Ping(background).Result()); got != "PONG" {
		t.Fatalf("PING: %q", got)
	}
}

func TestBothWaysReachTheSameStore(t *testing.T) {
	s := start(t, Config{})
	must[string](t)(overTCP(t, s).Set(background, "k", "v", 0).Result())
	if got := must[string](t)(inMemory(t, s).Get(background, "k").Result()); got != "v" {
		t.Fatalf("k = %q", got)
	}
}

func TestAddressInUse(t *testing.T) {
	s := start(t, Config{})
	other, err := Start(Config{Addr: s.Addr()})
	if err == nil {
		other.Close()
		t.Fatal("a second server got the same address")
	}
	if !strings.Contains(err.Error(), "start embedded redis: listen tcp "+s.Addr()) {
		t.Fatalf("error: %v", err)
	}
}

func TestDialOnlyHasNoSocket(t *testing.T) {
	s := start(t, Config{DialOnly: true})
	if s.Addr() != DialOnlyAddr || s.URL() != "redis://"+DialOnlyAddr+"/0" {
		t.Fatalf("Addr %q, URL %q", s.Addr(), s.URL())
	}
	must[string](t)(inMemory(t, s).Ping(background).Result())
}

func TestDialRefuses(t *testing.T) {
	s := start(t, Config{DialOnly: true})
	done, cancel := context.WithCancel(background)
	cancel()
	if _, err := s.Dial(done, "tcp", s.Addr()); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	s.Close()
	if _, err := s.Dial(background, "tcp", s.Addr()); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	s.Close() // once more does nothing
}

// Close with clients of all kinds connected leaves no goroutine behind, as goleak checks.
func TestCloseWithClients(t *testing.T) {
	s := start(t, Config{})
	tcp, mem := overTCP(t, s), inMemory(t, s)
	must[string](t)(tcp.Ping(background).Result())
	sub := mem.Subscribe(background, "c")
	defer sub.Close()
	must[any](t)(sub.Receive(background))
	idle, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	s.Close()
	if err := tcp.Ping(background).Err(); err == nil {
		t.Error("PING answered after Close")
	}
}

// TestCloseDuringDials lets connections arrive while the server closes.
func TestCloseDuringDials(t *testing.T) {
	s := start(t, Config{})
	dialing := make(chan struct{})
	go func() {
		defer close(dialing)
		for {
			c, err := net.Dial("tcp", s.Addr())
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	must[string](t)(overTCP(t, s).Ping(background).Result())
	s.Close()
	<-dialing
}

func TestFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Start(Config{DialOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c := inMemory(t, s)
		defer c.Close()
		if got := must[time.Time](t)(c.Time(background).Result()); !got.Equal(time.Now()) {
			t.Fatalf("TIME %v, the bubble's clock says %v", got, time.Now())
		}
		must[string](t)(c.Set(background, "k", "v", time.Hour).Result())
		for range 30 * 24 { // thirty days, at no cost
			pass(time.Hour - time.Millisecond)
			if n := must[int64](t)(c.Exists(background, "k").Result()); n != 1 {
				t.Fatal("expired before its time")
			}
			pass(time.Millisecond)
			if n := must[int64](t)(c.Exists(background, "k").Result()); n != 0 {
				t.Fatal("still there after its time")
			}
			must[string](t)(c.Set(background, "k", "v", time.Hour).Result())
		}
	})
}

// TestPassword lets in only clients that have it, and all that they do.
func TestPassword(t *testing.T) {
	s, err := Start(Config{Password: "a:b@c/d"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	o, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	for password, ok := range map[string]bool{"": false, "other": false, o.Password: true} {
		o := *o
		o.Password = password
		client := redis.NewClient(&o)
		for name, command := range map[string][]any{
			"set": {"set", "k", "v"}, "script": {"eval", "return redis.call('SET', KEYS[1], 'v')", 1, "k"}, "publish": {"publish", "c", "m"},
		} {
			if err := client.Do(t.Context(), command...).Err(); (err == nil) != ok {
				t.Errorf("%s with password %q: %v", name, password, err)
			}
		}
		_ = client.Close()
	}
}

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
