// Package embedded is a Redis server inside the process, for a trial on one
// machine (--embedded-redis, demo) and for tests with fake time.
//
// It is github.com/alicebob/miniredis with three things that a coordinator of
// jobs needs and a test server has not by itself:
//
//   - Its clock runs. In miniredis TTLs stand still by default;
//     here keys expire as time passes, seen by commands and by scripts alike.
//     A script and a transaction see one instant from begin to end, as in Redis.
//   - A client that does not read never holds up the others. miniredis writes
//     replies, and published messages, under the lock of the whole server; here
//     each connection has a queue, and is closed when too much waits in it, as
//     Redis does with its output buffer limits.
//   - Close returns when the listener and all connections are gone.
//
// With Config.DialOnly there is no socket at all: Dial gives connections in
// memory, so that servers and clients live inside a testing/synctest bubble and
// thirty days pass in seconds.
//
// # What it is not
//
// It is no store for a cluster: each process has its own, so N
// replicas with N embedded servers would run every job N times. Nothing is
// written to disk: its data is gone with the process. There is no
// TLS, replication, Sentinel or Cluster.
//
// Known differences from Redis 7 that matter to code for both:
//
//   - INFO knows the sections server (with [Mode], and nothing else),
//     clients and stats alone (others are an error). It is answered at once,
//     inside MULTI too.
//   - CONFIG, ROLE, DEBUG and most of CLIENT and COMMAND are unknown commands, so
//     checks of a server's settings have nothing to ask here.
//   - WAIT answers 0 at once: there are no replicas.
//   - Each command of a client sorts and walks all keys to expire some. Measured:
//     0.2 ms beside 1,000 keys, 2.5 ms beside 10,000 (BenchmarkScript), so
//     thousands of jobs are not for a trial.
//   - The versions that WATCH needs stay for every key that ever was: memory
//     grows with distinct key names, also of keys long gone.
//   - Lua is gopher-lua: numbers print as integers in tostring and in
//     concatenation where Redis gives 1.7645904020003e+15, so only a test on
//     Redis finds a forgotten string.format("%.0f", n). There are no cmsgpack,
//     struct and bit libraries. A script runs until it ends: nothing stops one
//     that does not, and Close waits for it.
//   - Commands must come as arrays: the inline form that people type is not read.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// DialOnlyAddr is the Addr of a server that has no socket: an IP address, so that clients need no DNS, with a port on which no server listens, so
// that a client that was given no Dialer fails instead of reaching some other Redis.
const DialOnlyAddr = "127.0.0.1:1"

// Mode is the redis_mode in the reply to INFO, by which a client distinguishes this server from a Redis, where it is standalone, sentinel or cluster.
const Mode = "embedded"

// acceptPause is how long accept rests after an error, so that a process out of
// file descriptors does not spin.
const acceptPause = 10 * time.Millisecond

// ErrClosed is returned by Dial after Close.
var ErrClosed = errors.New("embedded redis is closed")

// Config says where a Server is reached. Its zero value serves on a free port
// of the loopback interface.
type Config struct {
	// Addr is the TCP address to serve on, "127.0.0.1:0" if empty.
	Addr string
	// Password is required of clients; "" admits every client that reaches the address, which are all users of the machine.
	Password string
	// DialOnly starts no listener: only Dial reaches the server. A
	// testing/synctest bubble needs this, since real sockets keep a bubble's
	// clock from advancing.
	DialOnly bool
}

// Server is a running in-process Redis. It is safe for concurrent use.
type Server struct {
	redis    *miniredis.Miniredis
	peers    *server.Server // redis' own, which serves connections handed to it
	addr     string
	password string

	running sync.WaitGroup // the accept loop, and one writer for each connection
	closing chan struct{}  // closed by Close

	mu     sync.Mutex // orders Dial and accept before Close
	closed bool
	doors  []door // that of the address, if it has one, and those of views
}

// door is a listener, and the server of the connections that it accepts.
type door struct {
	net.Listener
	peers *server.Server
}

// Start starts a server that is empty and serves until Close. It returns an
// error if the address can't be listened on.
func Start(cfg Config) (*Server, error) {
	s := &Server{redis: miniredis.NewMiniRedis(), addr: DialOnlyAddr, password: cfg.Password, closing: make(chan struct{})}
	if err := s.startRedis(); err != nil {
		return nil, fmt.Errorf("start embedded redis: %w", err)
	}
	if cfg.DialOnly {
		return s, nil
	}
	addr := cfg.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("start embedded redis: %w", err)
	}
	s.addr = listener.Addr().String()
	s.open(door{listener, s.peers})
	return s, nil
}

// open serves a door.
func (s *Server) open(d door) {
	s.doors = append(s.doors, d)
	s.running.Go(func() { s.accept(d) })
}

// startRedis brings up miniredis without a listener of its own: Dial is its
// only way to do so, and the connection that comes with it is not needed.
func (s *Server) startRedis() error {
	first, err := s.redis.Dial()
	if err != nil {
		return err
	}
	s.peers = s.redis.Server()
	c := newClock(s.redis)
	s.redis.ClockTTL(true)
	s.redis.RequireAuth(s.password) // "" does not
	s.peers.SetPreHook(func(p *server.Peer, cmd string, args ...string) (done bool) {
		return c.beforeCommand(p, cmd, args...) || tellMode(p, cmd, args)
	})
	return first.Close()
}

// tellMode answers INFO server, which miniredis does not know.
func tellMode(p *server.Peer, cmd string, args []string) (done bool) {
	if cmd != "INFO" || len(args) != 1 || !strings.EqualFold(args[0], "server") {
		return false
	}
	p.WriteBulk("# Server\r\nredis_mode:" + Mode + "\r\n")
	return true
}

// Addr is the address that the server listens on as IP:port, or DialOnlyAddr.
func (s *Server) Addr() string { return s.addr }

// URL is the server's address as redis://IP:port/0, with the password if there is one.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr(), Path: "/0"}
	if s.password != "" {
		u.User = url.UserPassword("", s.password)
	}
	return u.String()
}

// Dial returns a connection to the server that uses no socket, whatever network
// and address are asked for; it has the form of the Dialer of go-redis'
// Options. It returns ErrClosed after Close, and ctx's error if ctx is done.
func (s *Server) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("dial embedded redis: %w", err)
	}
	client, peer := net.Pipe()
	if !s.serve(peer, s.peers) {
		return nil, fmt.Errorf("dial embedded redis: %w", ErrClosed)
	}
	return client, nil
}

// Close closes the listeners and all connections, and returns when the goroutines that served them have ended, a second later at most for clients that
// do not read their replies. The data is gone. More calls of Close do nothing.
func (s *Server) Close() {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	s.mu.Unlock()
	if already {
		return
	}
	close(s.closing)
	for _, d := range s.doors {
		_ = d.Close() // it accepts no more either way
		d.peers.Close()
	}
	s.redis.Close()
	s.running.Wait()
}

// accept serves connections until the listener is closed. Other errors of Accept (a connection reset early, no file descriptors) concern one client.
func (s *Server) accept(d door) {
	for {
		conn, err := d.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.rest(acceptPause)
			continue
		}
		if !s.serve(conn, d.peers) {
			return
		}
	}
}

// rest waits for a while, or until Close.
func (s *Server) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.closing:
	}
}

// serve hands conn to the server of a door, with a queue before it; false after Close.
func (s *Server) serve(conn net.Conn, peers *server.Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return false
	}
	q := newQueuedConn(conn)
	s.running.Go(q.drain)
	peers.ServeConn(q)
	return true
}
