package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/resp"
)

// answerHook notes that a server has answered.
type answerHook struct{ answered *atomic.Bool }

// DialHook changes nothing.
func (answerHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook looks at single commands.
func (h answerHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.note(err)
		return err
	}
}

// ProcessPipelineHook looks at many.
func (h answerHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.note(err)
		return err
	}
}

func (h answerHook) note(err error) {
	if err == nil || isReply(err) {
		h.answered.Store(true)
	}
}

// dialHook notes the address of each new connection. The client asks the Sentinels for that of the master before each.
type dialHook struct{ dialed *atomic.Pointer[string] }

// DialHook notes the address.
func (h dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err == nil {
			to := conn.RemoteAddr().String()
			h.dialed.Store(&to)
		}
		return conn, err
	}
}

// ProcessHook changes nothing.
func (dialHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook changes nothing.
func (dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// errorHook makes the errors of a client complete, and keeps secrets and panics out of them.
//
// Complete: where a new connection is refused (NOAUTH, WRONGPASS) the client reports it for a pipeline as a whole, and leaves the pipeline's commands
// without an error, as if they had been done.
//
// Secrets: a server, or a proxy, that does not know AUTH or HELLO repeats the bytes that it was sent: the password, or the beginning of it.
//
// Panics: a malformed reply breaks the connection, and not the process. Package resp finds it before the client reads it; a panic of the client at
// any other reply becomes an error.
type errorHook struct{ password string }

// DialHook guards connections.
func (errorHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return resp.Guard(conn), nil
	}
}

// recovered turns a panic of the client, which has closed the connection by then, into the error of a broken one.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", resp.ErrMalformed, p)
	}
}

// ProcessHook looks at single commands. AUTH and HELLO are.
func (h errorHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) (err error) {
		defer recovered(&err)
		return h.hide(next(ctx, cmd))
	}
}

// ProcessPipelineHook looks at many.
func (errorHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := guarded(ctx, next, cmds)
		if err == nil || slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
			return err
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

// guarded executes a pipeline. Where the client panics, the earlier replies are dropped as well: the results of the other commands are unknown.
func guarded(ctx context.Context, next redis.ProcessPipelineHook, cmds []redis.Cmder) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}()
	defer recovered(&err)
	err = next(ctx, cmds)
	returned = true
	return err
}

// hide returns the error itself if there is nothing to hide.
func (h errorHook) hide(err error) error {
	var reply redis.Error
	if h.password == "" || !errors.As(err, &reply) {
		return err
	}
	text, _, repeats := strings.Cut(err.Error(), ", with args beginning with")
	if !repeats && !strings.Contains(text, h.password) {
		return err
	}
	return maskedReply{err, strings.ReplaceAll(text, h.password, mask)}
}

// maskedReply is an error reply with another text.
type maskedReply struct {
	cause error
	text  string
}

func (m maskedReply) Error() string { return m.text }

// Unwrap lets the client see that it is a reply.
func (m maskedReply) Unwrap() error { return m.cause }

// mask stands for a password in an error.
const mask = "***"
