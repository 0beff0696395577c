package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
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

// masterHook marks and notes the connections to the master that Sentinels name. The client asks the Sentinels for it before each.
type masterHook struct{ dialed *atomic.Pointer[string] }

// toMaster is the context of a connection to the master. The client hands it to the dialer as it is, and has other contexts for connections to Sentinels.
type toMaster struct{ context.Context }

// DialHook notes the address.
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

// errorHook makes the errors of a client complete, and keeps panics out of them.
//
// Complete: where a new connection is refused (NOAUTH, WRONGPASS) the client reports it for a pipeline as a whole, and leaves the pipeline's commands
// without an error, as if they had been done. And a command whose time ends while a connection is being made says in which step that is.
//
// Panics: a malformed reply breaks the connection, and not the process. Package resp finds it before the client reads it; a panic of the client at
// any other reply becomes an error.
type errorHook struct{ steps *progress }

// DialHook changes nothing.
func (errorHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// recovered turns a panic of the client, which has closed the connection by then, into the error of a broken one.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", resp.ErrMalformed, p)
	}
}

// ProcessHook looks at single commands.
func (h errorHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) (err error) {
		defer recovered(&err)
		return h.explain(next(ctx, cmd))
	}
}

// ProcessPipelineHook looks at many.
func (h errorHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := guarded(ctx, next, cmds)
		if err == nil {
			return nil
		}
		explained := h.explain(err)
		known := slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil })
		for _, cmd := range cmds {
			if !known || cmd.Err() == err { //nolint:errorlint // the client gives each command the same
				cmd.SetErr(explained)
			}
		}
		return explained
	}
}

// explain adds to a time-out which connection is being made meanwhile.
func (h errorHook) explain(err error) error {
	var known *waitingError
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &known) {
		return err
	}
	if step := h.steps.oldest(); step != "" {
		return &waitingError{err, step}
	}
	return err
}

// waitingError is a time-out while a connection is being made.
type waitingError struct {
	cause error
	step  string
}

func (w *waitingError) Error() string { return w.cause.Error() + " (" + w.step + ")" }

// Unwrap returns the cause.
func (w *waitingError) Unwrap() error { return w.cause }

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
