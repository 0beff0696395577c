package redisconn

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/dial"
	"github.com/cronclave/cronclave/internal/resp"
)

const (
	// handshakeTimeout is the time limit of the TLS handshake. firstReplyTimeout is the time limit of the first reply.
	handshakeTimeout  = 3 * time.Second
	firstReplyTimeout = 3 * time.Second
	// dialTimeout is the time limit of all steps of a connection attempt. Callers do not wait that long: go-redis continues the attempt in the
	// background, and keeps the connection for the next caller.
	dialTimeout = dial.Timeout + handshakeTimeout + firstReplyTimeout
)

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// A connector opens connections to servers with the same secrets. It looks up the name, connects, performs the TLS handshake, and authenticates. Each
// step has its own time limit.
type connector struct {
	*secrets
	dial   func(ctx context.Context, network, addr string, note func(step string)) (net.Conn, error)
	steps  *progress
	closed context.Context // ends when the client is closed
}

// connect returns an authenticated connection. Its error names the step that failed.
func (c *connector) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	defer context.AfterFunc(c.closed, cancel)()
	note, end := c.steps.beginAttempt()
	defer end()
	conn, err := c.dial(ctx, network, addr, note)
	if err != nil {
		return nil, err
	}
	if c.certificates != nil {
		note("TLS with " + addr)
		if conn, err = c.startTLS(ctx, conn, addr); err != nil {
			return nil, err
		}
	}
	note("first reply of " + addr)
	if err := c.logIn(ctx, conn, addr); err != nil {
		_ = conn.Close() // the connection is unusable anyway
		return nil, err
	}
	return resp.Guard(conn), nil
}

func (c *connector) startTLS(ctx context.Context, plain net.Conn, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTimeout, errSlowStep(handshakeTimeout))
	defer cancel()
	conn := tls.Client(plain, c.certificates.tlsConfig(addr))
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close() // the connection is unusable anyway
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, &dial.Error{Step: "TLS with " + addr, Err: err}
	}
	if sent := conn.ConnectionState().PeerCertificates; len(sent) > 0 {
		c.certificates.serverSent.Store(&sent)
	}
	return conn, nil
}

func errSlowStep(after time.Duration) error {
	return fmt.Errorf("%w within %v", dial.ErrSilent, after)
}

// logIn sends the user and the password, or a PING if there is no password, and reads the first reply.
func (c *connector) logIn(ctx context.Context, conn net.Conn, addr string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, firstReplyTimeout, errSlowStep(firstReplyTimeout))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	password := c.currentPassword()
	reply, err := sendCommand(conn, c.firstCommand(password)...)
	if strings.HasPrefix(reply, "-ERR wrong number of arguments for 'auth'") && c.user == "" { // Redis before 6 has no users
		reply, err = sendCommand(conn, "AUTH", password)
	}
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		return &dial.Error{Step: "first reply of " + addr, Err: err}
	}
	if refused, is := strings.CutPrefix(reply, "-"); is {
		return c.judgeReply(addr, errorReply(hidePassword(refused, password)), password != "")
	}
	return nil
}

// firstCommand returns the first command.
func (c *connector) firstCommand(password string) []string {
	switch {
	case password == "":
		return []string{"PING"}
	case c.user == "":
		return []string{"AUTH", "default", password}
	}
	return []string{"AUTH", c.user, password}
}

// judgeReply returns the error of a connection whose first reply is an error, or nil if the connection can be used.
func (c *connector) judgeReply(addr string, reply errorReply, authenticated bool) error {
	switch {
	case redis.HasErrorPrefix(reply, "DENIED"), redis.HasErrorPrefix(reply, "max number of clients"): // Redis sends these replies to any client
		return reply
	case authenticated, redis.HasErrorPrefix(reply, "NOAUTH"):
		return &refusedLogin{addr, c.user, c.sentinel, reply}
	}
	return nil // later commands fail with their own errors, for example while Redis loads its data
}

// An errorReply is an error reply of Redis.
type errorReply string

func (e errorReply) Error() string { return string(e) }

// RedisError marks the error as an error reply for go-redis.
func (errorReply) RedisError() {}

// refusedLogin is the error if a server refuses the user or the password.
type refusedLogin struct {
	addr, user string
	sentinel   bool
	reply      errorReply
}

func (r *refusedLogin) Error() string {
	server, user := "the server ", r.user
	if r.sentinel {
		server = "the Sentinel "
	}
	if user == "" {
		user = "default"
	}
	return fmt.Sprintf("%s%s refuses the user %s: %s", server, r.addr, user, string(r.reply))
}

// Unwrap returns the reply.
func (r *refusedLogin) Unwrap() error { return r.reply }

// errNoRedis is the error if a server does not speak the Redis protocol.
var errNoRedis = errors.New("it is no Redis")

// sendCommand sends a command and returns the reply, which must be one line. No other reply is outstanding, so the reader consumes nothing else.
func sendCommand(conn net.Conn, words ...string) (string, error) {
	var command strings.Builder
	fmt.Fprintf(&command, "*%d\r\n", len(words))
	for _, word := range words {
		command.WriteString("$" + strconv.Itoa(len(word)) + "\r\n" + word + "\r\n")
	}
	if _, err := conn.Write([]byte(command.String())); err != nil {
		return "", err //nolint:wrapcheck // the caller names the step
	}
	const mostReply = 4096
	in := bufio.NewReaderSize(conn, mostReply)
	line, err := in.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return "", err //nolint:wrapcheck // the caller names the step
	}
	reply := strings.TrimRight(string(line), "\r\n")
	if in.Buffered() > 0 || reply == "" || reply[0] != '+' && reply[0] != '-' {
		return "", fmt.Errorf("%w: it answers %q", errNoRedis, printableText(reply, mostText))
	}
	return reply, nil
}
