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

// A masterHook marks connections to the master behind Sentinels, and records the address of the master. go-redis asks the Sentinels for the master
// before each of these connections.
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
// succeeded. The hook sets the errors of the commands. If a command times out during a connection attempt, the hook adds the current step of the
// attempt.
//
// A malformed reply must end the connection, not the process. Package resp detects most malformed replies before go-redis parses them. If go-redis
// panics on another reply, the hook returns an error.
type errorHook struct{ steps *progress }

// DialHook changes nothing.
func (errorHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// recoverPanic turns a panic of go-redis into an error. go-redis has closed the connection before it panics.
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
			if !known || cmd.Err() == err { //nolint:errorlint // the client gives each command the same
				cmd.SetErr(explained)
			}
		}
		return explained
	}
}

// explainTimeout adds the connection step in progress to a time-out.
func (h errorHook) explainTimeout(err error) error {
	var known *waitingError
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &known) {
		return err
	}
	if step := h.steps.oldestStep(); step != "" {
		return &waitingError{err, step}
	}
	return err
}

// A waitingError is a time-out during a connection attempt, with the current step of the attempt.
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
