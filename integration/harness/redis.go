package harness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func PortOf(addr string) string { _, port, _ := net.SplitHostPort(addr); return port }

// StartTimeout bounds one start or stop of a server, a slow machine's included.
const StartTimeout = 3 * time.Minute

// RedisSpace is a namespace of the shared server for one test. Tests must not pause, stop or flush that server.
type RedisSpace struct {
	URL       string
	Namespace string        // never used before; its keys are deleted after the test
	Client    *redis.Client // closed after the test
}

// SharedRedis returns a fresh namespace of the one server that all tests share.
func SharedRedis(t *testing.T) RedisSpace {
	t.Helper()
	r := MustRealRedis(t)
	space := RedisSpace{
		URL:       "redis://" + r.Shared.Addr() + "/0",
		Namespace: "it-" + strings.ToLower(rand.Text()[:12]),
		Client:    NewClient(t, r.Shared.Addr()),
	}
	t.Cleanup(func() {
		if err := deleteKeys(space.Client, "cronclave:"+space.Namespace+":*"); err != nil {
			t.Errorf("delete the keys of namespace %s: %v", space.Namespace, err)
		}
	})
	return space
}

// RedisOpts are the settings of a server; the zero value keeps nothing on disk.
type RedisOpts struct {
	Persist bool     // an append-only file, written through at each command
	Args    []string // more arguments for redis-server, such as "--maxmemory-policy", "allkeys-lru"
}

// Memory is the data that a server has when it starts again.
type Memory int

const (
	// kept starts on the disk that the server left: all of it with Persist, nothing without.
	MemoryKept Memory = iota
	// lost starts on an empty disk, whatever the server had.
	MemoryLost
)

// RedisServer is a real Redis for one test alone. Its methods fail the test where they cannot do what they say, and
// are for the test's own goroutine. The address stays the same through all of them.
type RedisServer struct {
	URL    string
	Client *redis.Client // closed after the test

	t        *testing.T
	Instance RedisInstance
}

// StartRedis starts a server of the test's own, and removes it after the test.
func StartRedis(t *testing.T, opts RedisOpts) *RedisServer {
	t.Helper()
	args := []string{"--save", "", "--appendonly", "no"}
	if opts.Persist {
		args = []string{"--save", "", "--appendonly", "yes", "--appendfsync", "always"}
	}
	return StartFrom(t, MustRealRedis(t).Source, append(args, opts.Args...))
}

// StartFrom starts a server of one kind with the given arguments, and removes it after the test.
func StartFrom(t *testing.T, source redisSource, args []string) *RedisServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), StartTimeout)
	defer cancel()
	instance, err := Launch(ctx, source, args)
	if err != nil {
		t.Fatal("start a Redis for the test:", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
		defer cancel()
		if t.Failed() {
			t.Logf("the test's Redis said:\n%s", instance.log())
		}
		if err := instance.Remove(ctx); err != nil {
			t.Error("remove the test's Redis:", err)
		}
	})
	return &RedisServer{
		URL:      "redis://" + instance.Addr() + "/0",
		Client:   NewClient(t, instance.Addr()),
		t:        t,
		Instance: instance,
	}
}

// PeerAddr returns the address for clients with TLS and for other servers, or the only address of a server without TLS.
func (s *RedisServer) PeerAddr() string {
	if p, is := s.Instance.(*RedisProcess); is {
		return "127.0.0.1:" + strconv.Itoa(p.peerPort())
	}
	return s.Instance.Addr()
}

// Kill ends the server by SIGKILL; connections are reset and new ones refused.
func (s *RedisServer) Kill() { s.t.Helper(); s.signal(syscall.SIGKILL) }

// Stop ends the server by SIGTERM, as an operator does.
func (s *RedisServer) Stop() { s.t.Helper(); s.signal(syscall.SIGTERM) }

// Pause freezes the server: connections stay, new ones are accepted by the kernel, nothing is answered.
func (s *RedisServer) Pause() { s.t.Helper(); s.signal(syscall.SIGSTOP) }

// Unpause lets a frozen server go on.
func (s *RedisServer) Unpause() { s.t.Helper(); s.signal(syscall.SIGCONT) }

// Start starts a server that was killed or stopped, and returns when it answers.
func (s *RedisServer) Start(m Memory) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), StartTimeout)
	defer cancel()
	if err := s.Instance.Start(ctx, m == MemoryLost); err != nil {
		s.t.Fatal("start the Redis again:", err)
	}
	if err := AwaitPing(ctx, s.Instance.Addr()); err != nil {
		s.t.Fatal("start the Redis again:", err)
	}
}

// Restart kills the server and starts it.
func (s *RedisServer) Restart(m Memory) { s.t.Helper(); s.Kill(); s.Start(m) }

func (s *RedisServer) signal(sig syscall.Signal) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), StartTimeout)
	defer cancel()
	if err := s.Instance.Signal(ctx, sig); err != nil {
		s.t.Fatal(err)
	}
}

func MustRealRedis(t *testing.T) *found {
	t.Helper()
	r, err := RealRedis()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// NewClient returns a client that does what a context says, also in mid-command, and tries nothing twice: a test
// wants to see what happened.
func NewClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(ClientOptions(addr))
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error("close the test's Redis client:", err)
		}
	})
	return c
}

func ClientOptions(addr string) *redis.Options {
	return &redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1}
}

// AwaitPing waits until the server answers, or for StartTimeout.
func AwaitPing(ctx context.Context, addr string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	c := redis.NewClient(ClientOptions(addr))
	defer func() { err = errors.Join(err, c.Close()) }()
	var latest error
	if !Poll(ctx, func() bool { latest = c.Ping(ctx).Err(); return latest == nil }) {
		return fmt.Errorf("no answer from the Redis at %s: %w", addr, latest)
	}
	return nil
}

func deleteKeys(c *redis.Client, pattern string) error {
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	keys := c.Scan(ctx, 0, pattern, 1000).Iterator()
	for keys.Next(ctx) {
		if err := c.Unlink(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}
