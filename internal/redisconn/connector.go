package redisconn

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/dial"
	"github.com/cronclave/cronclave/internal/resp"
)

const (
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
	state := conn.ConnectionState()
	c.certificates.version.Store(uint32(state.Version))
	if sent := state.PeerCertificates; len(sent) > 0 {
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
	case redis.HasErrorPrefix(reply, "DENIED"), redis.HasErrorPrefix(reply, "max number of clients"): // Redis sends these replies to any user
		return reply
	case authenticated, redis.HasErrorPrefix(reply, "NOAUTH"):
		return &refusedLogin{addr, c.user, c.sentinel, reply}
	}
	return nil // later commands fail with their own errors, for example while Redis loads its data
}

type errorReply string

func (e errorReply) Error() string { return string(e) }

// RedisError marks the error as an error reply for go-redis.
func (errorReply) RedisError() {}

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
	user = cmp.Or(user, "default")
	return fmt.Sprintf("%s%s refuses the user %s: %s", server, r.addr, user, string(r.reply))
}

// Unwrap returns the reply.
func (r *refusedLogin) Unwrap() error { return r.reply }

var errNoRedis = errors.New("it is no Redis")

// sendCommand sends a command and returns the reply, which must be one line. The buffered reader takes no bytes of a later reply, because no other
// command was sent.
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

// progress tracks the connection attempts in progress, so that a command that times out can name the step that took long. It is safe for concurrent
// use.
type progress struct {
	mu       sync.Mutex
	attempts map[*attempt]bool
}

type attempt struct {
	step  string
	began time.Time // start of the step
}

// beginAttempt adds an attempt. The caller calls note at the start of each step, and end at the end of the attempt.
func (p *progress) beginAttempt() (note func(step string), end func()) {
	a := &attempt{}
	note = func(step string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.attempts == nil {
			p.attempts = map[*attempt]bool{}
		}
		*a = attempt{step, time.Now()}
		p.attempts[a] = true
	}
	return note, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.attempts, a)
	}
}

// oldestStep describes the step that has taken longest so far, or returns "" if no attempt is in progress.
func (p *progress) oldestStep() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var oldest *attempt
	for a := range p.attempts {
		if oldest == nil || a.began.Before(oldest.began) {
			oldest = a
		}
	}
	if oldest == nil {
		return ""
	}
	return fmt.Sprintf("%s: no answer for %v so far", oldest.step, time.Since(oldest.began).Round(time.Millisecond))
}

// An answerHook records that a server has answered.
type answerHook struct{ answered *atomic.Bool }

// DialHook changes nothing.
func (answerHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook records the answer to a command.
func (h answerHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.noteAnswer(err)
		return err
	}
}

// ProcessPipelineHook records the answer to a pipeline.
func (h answerHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.noteAnswer(err)
		return err
	}
}

func (h answerHook) noteAnswer(err error) {
	if err == nil || isReply(err) {
		h.answered.Store(true)
	}
}

// A masterHook marks connections to the master behind Sentinels, and records the address of the newest one. go-redis asks the Sentinels for the
// master before each of these connections.
type masterHook struct{ dialed *atomic.Pointer[string] }

// toMaster marks the context of a connection to the master. go-redis passes this context to the dialer unchanged. Connections to Sentinels have other
// contexts.
type toMaster struct{ context.Context }

// DialHook records the address.
func (h masterHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(toMaster{ctx}, network, addr)
		if err == nil {
			to := conn.RemoteAddr().String()
			h.dialed.Store(&to)
		}
		return conn, err
	}
}

// ProcessHook changes nothing.
func (masterHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook changes nothing.
func (masterHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// An errorHook completes the errors of go-redis, and turns its panics into errors.
//
// If Redis refuses a new connection (NOAUTH, WRONGPASS), go-redis returns an error for the whole pipeline but none for its commands, as if they had
// succeeded. The hook sets the errors of the commands. If a command times out while a connection attempt is in progress, the hook adds the current
// step of the attempt.
//
// A malformed reply must end the connection, not the process. Package resp detects most malformed replies before go-redis parses them. If go-redis
// panics on any other reply, the hook returns an error.
type errorHook struct{ steps *progress }

// DialHook changes nothing.
func (errorHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// recoverPanic turns a panic of go-redis into an error. By then, go-redis has closed the connection.
func recoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", resp.ErrMalformed, p)
	}
}

// ProcessHook completes the error of a command.
func (h errorHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) (err error) {
		defer recoverPanic(&err)
		return h.explainTimeout(next(ctx, cmd))
	}
}

// ProcessPipelineHook completes the errors of a pipeline.
func (h errorHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := executePipeline(ctx, next, cmds)
		if err == nil {
			return nil
		}
		explained := h.explainTimeout(err)
		known := slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil })
		for _, cmd := range cmds {
			if !known || cmd.Err() == err { //nolint:errorlint // the client sets the same error on each command
				cmd.SetErr(explained)
			}
		}
		return explained
	}
}

func (h errorHook) explainTimeout(err error) error {
	if _, known := errors.AsType[*waitingError](err); known || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if step := h.steps.oldestStep(); step != "" {
		return &waitingError{err, step}
	}
	return err
}

type waitingError struct {
	cause error
	step  string
}

func (w *waitingError) Error() string { return w.cause.Error() + " (" + w.step + ")" }

// Unwrap returns the cause.
func (w *waitingError) Unwrap() error { return w.cause }

// executePipeline executes a pipeline. If go-redis panics, all commands get an error, because it is unknown which commands got their reply.
func executePipeline(ctx context.Context, next redis.ProcessPipelineHook, cmds []redis.Cmder) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}()
	defer recoverPanic(&err)
	err = next(ctx, cmds)
	returned = true
	return err
}

// A Trouble is a class of errors that make Redis unusable.
type Trouble struct {
	// What completes a sentence that begins with "Redis", such as "can't be reached".
	What string
	// Remedy is advice to the operator; "" if there is none.
	Remedy string
}

var (
	// Unreachable means that Redis does not answer.
	Unreachable = Trouble{What: "can't be reached"}
	// ErrorReply means that Redis answers with an error that belongs to no other class.
	ErrorReply = Trouble{What: "answers with an error"}
	// BadCredentials means that Redis refuses the user or the password.
	BadCredentials = Trouble{"refuses the credentials", "set the right user and password in CRONCLAVE_REDIS, [redis].url or [redis].password_file (the file is read at each connection, the others at the start)"}
	// BadSentinelCredentials means that a Sentinel refuses the user or the password.
	BadSentinelCredentials = Trouble{"can't be found: a Sentinel refuses the credentials", "set the right user and password_file in [redis].sentinel; the user and the password in the URL are those of the master"}
	// Forbidden means that the Redis user lacks permissions. [Rights] returns the rules to grant them.
	Forbidden = Trouble{What: "does not permit its user what is needed"}
)

// TroubleOf classifies an error of a client.
func TroubleOf(err error) Trouble {
	var reply redis.Error
	var login *refusedLogin
	switch {
	case isLoginError(err) && errors.As(err, &login) && login.sentinel:
		return BadSentinelCredentials
	case isLoginError(err):
		return BadCredentials
	case redis.IsPermissionError(err):
		return Forbidden
	case errors.As(err, &reply):
		return ErrorReply
	}
	return Unreachable
}

func isLoginError(err error) bool {
	return slices.ContainsFunc([]string{"WRONGPASS", "NOAUTH", "invalid password", "Client sent AUTH"}, // the last two are from Redis before 6
		func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// Because returns an error with the trouble, its cause and its remedy.
func (t Trouble) Because(err error) error {
	switch {
	case t == Forbidden:
		return fmt.Errorf("%s (%w)", t.What, err)
	case t.Remedy == "":
		return fmt.Errorf("%s: %w", t.What, err)
	}
	return fmt.Errorf("%s (%w): %s", t.What, err, t.Remedy)
}
