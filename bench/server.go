package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a redis-server process of our own. It keeps nothing on disk, and its address through every restart.
type server struct {
	addr    string
	dir     string
	process *exec.Cmd
	admin   *redis.Client
}

// startServer starts a server on a free port. The port may be taken between being chosen and being used, hence more
// than one try.
func startServer(ctx context.Context) (*server, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errors.New("no redis-server in PATH; install it (apt-get install redis-server; brew install redis)")
	}
	const tries = 3
	var err error
	for range tries {
		var s *server
		if s, err = tryServer(ctx); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func tryServer(ctx context.Context) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{addr: l.Addr().String()}
	if err = l.Close(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "bench-redis-"); err != nil {
		return nil, err
	}
	s.admin = redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: 1})
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// start launches the process and waits until it answers.
func (s *server) start(ctx context.Context) error {
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return err
	}
	s.process = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", s.dir)
	endWithUs(s.process)
	if err := s.process.Start(); err != nil {
		s.process = nil
		return fmt.Errorf("start redis-server: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		err := s.admin.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis-server at %s does not answer: %w", s.addr, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// kill ends the process: connections are reset, and new ones refused.
func (s *server) kill() error {
	if s.process == nil {
		return nil
	}
	err := s.process.Process.Kill()
	_ = s.process.Wait() // says that it was killed
	s.process = nil
	return err
}

// freeze has the process hang, with its connections open; thaw lets it go on.
func (s *server) freeze() error { return s.process.Process.Signal(syscall.SIGSTOP) }
func (s *server) thaw() error   { return s.process.Process.Signal(syscall.SIGCONT) }

func (s *server) remove() error {
	return errors.Join(s.admin.Close(), s.kill(), os.RemoveAll(s.dir))
}

// cpu is how long the server has worked so far.
func (s *server) cpu(ctx context.Context) (time.Duration, error) {
	info, err := s.admin.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	var sum float64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_user" && name != "used_cpu_sys" {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return time.Duration(sum * float64(time.Second)), nil
}
