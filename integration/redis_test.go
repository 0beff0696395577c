package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startTimeout bounds one start or stop of a server, a slow machine's included.
const startTimeout = time.Minute

// redisSpace is a namespace of the shared server for one test. Tests must not pause, stop or flush that server.
type redisSpace struct {
	URL       string
	Namespace string        // never used before; its keys are deleted after the test
	Client    *redis.Client // closed after the test
}

// sharedRedis returns a fresh namespace of the one server that all tests share.
func sharedRedis(t *testing.T) redisSpace {
	t.Helper()
	r := mustRealRedis(t)
	space := redisSpace{
		URL:       "redis://" + r.shared.addr() + "/0",
		Namespace: "it-" + strings.ToLower(rand.Text()[:12]),
		Client:    newClient(t, r.shared.addr()),
	}
	t.Cleanup(func() {
		if err := deleteKeys(space.Client, "cronclave:"+space.Namespace+":*"); err != nil {
			t.Errorf("delete the keys of namespace %s: %v", space.Namespace, err)
		}
	})
	return space
}

// redisOpts are the settings of a server; the zero value keeps nothing on disk.
type redisOpts struct {
	Persist bool     // an append-only file, written through at each command
	Args    []string // more arguments for redis-server, such as "--maxmemory-policy", "allkeys-lru"
}

// memory is the data that a server has when it starts again.
type memory int

const (
	// kept starts on the disk that the server left: all of it with Persist, nothing without.
	kept memory = iota
	// lost starts on an empty disk, whatever the server had.
	lost
)

// redisServer is a real Redis for one test alone. Its methods fail the test where they cannot do what they say, and
// are for the test's own goroutine. The address stays the same through all of them.
type redisServer struct {
	URL    string
	Client *redis.Client // closed after the test

	t        *testing.T
	instance redisInstance
}

// startRedis starts a server of the test's own, and removes it after the test.
func startRedis(t *testing.T, opts redisOpts) *redisServer {
	t.Helper()
	args := []string{"--save", "", "--appendonly", "no"}
	if opts.Persist {
		args = []string{"--save", "", "--appendonly", "yes", "--appendfsync", "always"}
	}
	return startFrom(t, mustRealRedis(t).source, append(args, opts.Args...))
}

// startFrom starts a server of one kind with the given arguments, and removes it after the test.
func startFrom(t *testing.T, source redisSource, args []string) *redisServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	instance, err := launch(ctx, source, args)
	if err != nil {
		t.Fatal("start a Redis for the test:", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if t.Failed() {
			t.Logf("the test's Redis said:\n%s", instance.log())
		}
		if err := instance.remove(ctx); err != nil {
			t.Error("remove the test's Redis:", err)
		}
	})
	return &redisServer{
		URL:      "redis://" + instance.addr() + "/0",
		Client:   newClient(t, instance.addr()),
		t:        t,
		instance: instance,
	}
}

// Kill ends the server by SIGKILL; connections are reset and new ones refused.
func (s *redisServer) Kill() { s.t.Helper(); s.signal(syscall.SIGKILL) }

// Stop ends the server by SIGTERM, as an operator does.
func (s *redisServer) Stop() { s.t.Helper(); s.signal(syscall.SIGTERM) }

// Pause freezes the server: connections stay, new ones are accepted by the kernel, nothing is answered.
func (s *redisServer) Pause() { s.t.Helper(); s.signal(syscall.SIGSTOP) }

// Unpause lets a frozen server go on.
func (s *redisServer) Unpause() { s.t.Helper(); s.signal(syscall.SIGCONT) }

// Start starts a server that was killed or stopped, and returns when it answers.
func (s *redisServer) Start(m memory) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), startTimeout)
	defer cancel()
	if err := s.instance.start(ctx, m == lost); err != nil {
		s.t.Fatal("start the Redis again:", err)
	}
	if err := awaitPing(ctx, s.instance.addr()); err != nil {
		s.t.Fatal("start the Redis again:", err)
	}
}

// Restart kills the server and starts it.
func (s *redisServer) Restart(m memory) { s.t.Helper(); s.Kill(); s.Start(m) }

func (s *redisServer) signal(sig syscall.Signal) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), startTimeout)
	defer cancel()
	if err := s.instance.signal(ctx, sig); err != nil {
		s.t.Fatal(err)
	}
}

func mustRealRedis(t *testing.T) *found {
	t.Helper()
	r, err := realRedis()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newClient returns a client that does what a context says, also in mid-command, and tries nothing twice: a test
// wants to see what happened.
func newClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(clientOptions(addr))
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error("close the test's Redis client:", err)
		}
	})
	return c
}

func clientOptions(addr string) *redis.Options {
	return &redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1}
}

// awaitPing waits until the server answers, or for startTimeout.
func awaitPing(ctx context.Context, addr string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c := redis.NewClient(clientOptions(addr))
	defer func() { err = errors.Join(err, c.Close()) }()
	var latest error
	if !poll(ctx, func() bool { latest = c.Ping(ctx).Err(); return latest == nil }) {
		return fmt.Errorf("no answer from the Redis at %s: %w", addr, latest)
	}
	return nil
}

func deleteKeys(c *redis.Client, pattern string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	keys := c.Scan(ctx, 0, pattern, 1000).Iterator()
	for keys.Next(ctx) {
		if err := c.Unlink(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}
