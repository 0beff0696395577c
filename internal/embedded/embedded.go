// Package embedded is a Redis server inside the process, for trials on one machine (--embedded-redis, demo) and for tests with fake time.
//
// It wraps github.com/alicebob/miniredis, and adds three features that a job coordinator needs:
//
//   - A running clock. In miniredis, TTLs stand still by default; here keys expire as time passes, for commands and for scripts alike. A script or a
//     transaction sees one instant from beginning to end, as in Redis.
//   - Independent clients. miniredis writes replies and published messages under the lock of the whole server, so one client that does not read would block
//     all others. Here each connection has a queue, and is closed when the queue grows too long, like the output buffer limits of Redis.
//   - A Close that returns when the listener and all connections are gone.
//
// With [Config.DialOnly] the server has no socket, and [Server.Dial] returns connections in memory. Servers and clients can then run inside a
// testing/synctest bubble, so that a test of thirty days takes seconds.
//
// # Limits
//
// It can't coordinate a cluster. Each process has its own server, so N replicas with N embedded servers would run every job N times. The data is in
// memory only, and is lost when the process ends. There is no TLS, replication, Sentinel or Cluster.
//
// Known differences from Redis 7 that matter to code that runs on both:
//
//   - INFO supports the sections server (with [Mode] and nothing else), clients and stats, at most one per call. Other sections are an error. Inside MULTI,
//     INFO server is not queued, but answered at once.
//   - CONFIG, ROLE, DEBUG and most of CLIENT and COMMAND are unknown commands, so checks of a server's settings are not possible.
//   - WAIT returns 0 at once: there are no replicas.
//   - To expire keys, each command of a client sorts and walks all keys: 0.2 ms with 1,000 keys, 2.5 ms with 10,000 (BenchmarkScript). So a trial with
//     thousands of jobs is slow.
//   - The versions for WATCH are kept for every key that ever existed, so memory grows with the number of distinct key names, deleted keys included.
//   - Lua is gopher-lua. Its tostring and concatenation print large numbers as integers, but Redis prints 1.7645904020003e+15. So only a test on Redis finds
//     a missing string.format("%.0f", n). The libraries cmsgpack, struct and bit are missing. A script that does not end can't be stopped, and Close waits
//     for it.
//   - Commands must be RESP arrays. Inline commands are refused.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// DialOnlyAddr is the address of a server without a socket. It is an IP address, so that clients need no DNS. Normally no server listens on its port,
// so a client without a Dialer fails instead of reaching another Redis.
const DialOnlyAddr = "127.0.0.1:1"

// Mode is the redis_mode in the reply to INFO. Clients use it to detect an embedded server. The mode of a real Redis is standalone, sentinel or
// cluster.
const Mode = "embedded"

// acceptPause is the pause after a failed Accept, so that the loop does not spin if the process has no free file descriptors.
const acceptPause = 10 * time.Millisecond

// ErrClosed is the error of Dial after Close.
var ErrClosed = errors.New("embedded redis is closed")

// Config configures a Server. Its zero value serves on a free port of the loopback interface.
type Config struct {
	// Addr is the TCP address to serve on, "127.0.0.1:0" if empty.
	Addr string
	// Password is the password that clients must send. If it is empty, every user of the machine can use the server.
	Password string
	// DialOnly starts the server without a listener, so that only Dial reaches it. A testing/synctest bubble needs this, because its clock does not
	// advance while a goroutine waits for a real socket.
	DialOnly bool
}

// A Server is a running in-process Redis. It is safe for concurrent use.
type Server struct {
	redis    *miniredis.Miniredis
	peers    *server.Server // the protocol server of redis, which serves connections passed to it
	addr     string
	password string

	running sync.WaitGroup // the accept loops, and one writer per connection
	closing chan struct{}  // closed by Close

	mu     sync.Mutex // makes sure that no connection is served after Close
	closed bool
	doors  []door // the listener of the server's own address, if it has one, and one listener per read-only view
}

type door struct {
	net.Listener
	peers *server.Server
}

// Start starts an empty server, which serves until Close. It fails if it cannot listen on the address.
func Start(cfg Config) (*Server, error) {
	s := &Server{redis: miniredis.NewMiniRedis(), addr: DialOnlyAddr, password: cfg.Password, closing: make(chan struct{})}
	if err := s.startRedis(); err != nil {
		return nil, fmt.Errorf("start embedded redis: %w", err)
	}
	if cfg.DialOnly {
		return s, nil
	}
	addr := cmp.Or(cfg.Addr, "127.0.0.1:0")
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("start embedded redis: %w", err)
	}
	s.addr = listener.Addr().String()
	s.openDoor(door{listener, s.peers})
	return s, nil
}

func (s *Server) openDoor(d door) {
	s.doors = append(s.doors, d)
	s.running.Go(func() { s.acceptLoop(d) })
}

// startRedis starts miniredis without a listener. In miniredis only Dial starts a server without one, so startRedis calls Dial and closes the connection.
func (s *Server) startRedis() error {
	first, err := s.redis.Dial()
	if err != nil {
		return err
	}
	s.peers = s.redis.Server()
	c := newClock(s.redis)
	s.redis.ClockTTL(true)
	s.redis.RequireAuth(s.password) // "" means that no password is required
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

// Addr returns the listening address as IP:port, or DialOnlyAddr.
func (s *Server) Addr() string { return s.addr }

// URL returns the server's address as redis://IP:port/0, with the password if there is one.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr(), Path: "/0"}
	if s.password != "" {
		u.User = url.UserPassword("", s.password)
	}
	return u.String()
}

// Dial returns an in-memory connection to the server. It ignores network and addr, so that it can be the Dialer in the Options of go-redis. It returns
// ErrClosed after Close, and the error of ctx if ctx has ended.
func (s *Server) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("dial embedded redis: %w", err)
	}
	client, peer := net.Pipe()
	if !s.serveConn(peer, s.peers) {
		return nil, fmt.Errorf("dial embedded redis: %w", ErrClosed)
	}
	return client, nil
}

// Close closes the listeners and all connections, and waits for their goroutines. This takes up to a second if clients do not read their replies. The
// data is lost. Further calls do nothing.
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
		_ = d.Close() // after an error, the listener accepts no more connections either
		d.peers.Close()
	}
	s.redis.Close()
	s.running.Wait()
}

// acceptLoop serves connections until the listener is closed. It continues after other errors of Accept, such as a reset connection or a lack of file
// descriptors.
func (s *Server) acceptLoop(d door) {
	for {
		conn, err := d.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.pauseAccept(acceptPause)
			continue
		}
		if !s.serveConn(conn, d.peers) {
			return
		}
	}
}

func (s *Server) pauseAccept(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.closing:
	}
}

// serveConn serves conn with a queue for its replies. It returns false after Close.
func (s *Server) serveConn(conn net.Conn, peers *server.Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return false
	}
	q := &queuedConn{Conn: conn, wake: make(chan struct{}, 1)}
	s.running.Go(q.drain)
	peers.ServeConn(q)
	return true
}

// A View gives clients read-only access to the data of a Server.
type View struct {
	Listener net.Listener
	// Reads has the commands, in upper case, that are allowed with any arguments. They must neither write nor block.
	Reads []string
	// Scripts has the texts of read-only scripts by their SHA-1. The view allows EVAL_RO and EVALSHA_RO only for these scripts, and executes them with
	// EVAL, because EVAL_RO of miniredis refuses TIME as a write.
	Scripts map[string]string
	// Hides reports whether an argument is a key whose value clients must not read. A nil Hides hides no keys.
	Hides func(key string) bool
	// Permits reports whether a command is allowed although it writes. The command is in upper case. A nil Permits allows none.
	Permits func(command string, args []string) bool
}

// onlyAView is the reply to a command that the view refuses. Clients treat it as a missing permission.
const onlyAView = "NOPERM this connection may look, and change nothing"

// IsRefusedByView reports whether err means that a view has refused a command.
func IsRefusedByView(err error) bool { return err != nil && strings.Contains(err.Error(), onlyAView) }

// ServeView serves v until Close, which also closes the listener of v.
func (s *Server) ServeView(v View) {
	peers := server.NewServerConn()
	peers.SetPreHook(func(p *server.Peer, cmd string, args ...string) (done bool) {
		if words := v.allowedCommand(cmd, args); words != nil {
			s.peers.Dispatch(p, words)
		} else {
			p.WriteError(onlyAView)
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = v.Listener.Close() // the error does not matter, because the listener has served no connection
		return
	}
	s.openDoor(door{v.Listener, peers})
}

// allowedCommand returns the words to execute for a command, or nil if the view refuses it.
func (v View) allowedCommand(cmd string, args []string) []string {
	switch {
	case v.Hides != nil && slices.ContainsFunc(args, v.Hides):
		return nil
	case cmd == "EVAL_RO" || cmd == "EVALSHA_RO":
		return v.scriptCall(cmd, args)
	case cmd == "SELECT" && (len(args) != 1 || args[0] != "0"): // miniredis allocates memory for each selected database
		return nil
	case slices.Contains(v.Reads, cmd), v.Permits != nil && v.Permits(cmd, args):
		return append([]string{cmd}, args...)
	}
	return nil
}

// scriptCall returns an EVAL of a script in Scripts, or nil for any other script. EVAL allows a script to write, but the scripts in Scripts only read.
func (v View) scriptCall(cmd string, args []string) []string {
	for sha, text := range v.Scripts {
		if len(args) > 0 && (cmd == "EVAL_RO" && args[0] == text || cmd == "EVALSHA_RO" && args[0] == sha) {
			return append([]string{"EVAL", text}, args[1:]...)
		}
	}
	return nil
}
